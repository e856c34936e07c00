"""Packaging of vaswani_transformer; tool settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="vaswani-transformer",
    version="0.1.0",
    description='The original 2017 Transformer ("Attention Is All You Need") as a Hugging Face model for translation',
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["vaswani_transformer", "vaswani_transformer.*"]),
    package_data={"vaswani_transformer": ["model_card_template.md", "pretrained/*/*"]},
    install_requires=[
        "torch>=2.11",
        "transformers>=5.17,<6",
        "tokenizers",
        "accelerate>=1.15",
        "datasets>=4",
        "evaluate>=0.4.6",
        "safetensors>=0.8",
        "sacrebleu>=2.6",
        "huggingface_hub",
        "jinja2",
        "numpy",
        "pyarrow",
        "pyyaml",
        "tqdm",
        "xxhash",
    ],
    extras_require={
        "sentences": ["sentencex>=1"],
        "plot": ["matplotlib>=3.8"],
        "demo": ["gradio>=6.31", "matplotlib>=3.8", "sentencex>=1"],
        "ctranslate2": ["ctranslate2>=4.8"],
        "onnx": ["onnx>=1.20", "onnxruntime>=1.24", "onnxscript>=0.7"],
        "wmt": ["sacremoses>=0.1"],
        "dev": [
            "pytest>=9",
            "ruff",
            "parameterized",
            "peft>=0.21",
            "sacremoses>=0.1",
            "sentencex>=1",
            "sentencepiece",
            "matplotlib>=3.8",
            "ctranslate2>=4.8",
            "onnx>=1.20",
            "onnxruntime>=1.24",
            "onnxscript>=0.7",
            "gradio>=6.31",
        ],
    },
    entry_points={"console_scripts": ["vaswani-transformer=vaswani_transformer.cli:main"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
