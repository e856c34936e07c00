"""Our classes and Marian's, each in the words of transformers' own test suite.

`tests/test_conformance.py` copies this file beside that suite's modules; it imports from there alone. Both models
get the same shapes, the same inputs and the same tests: nothing is overridden and nothing skipped here.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import MarianConfig, MarianModel, MarianMTModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)
from transformers.testing_utils import torch_device

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration, VaswaniModel

from .generation.test_utils import GenerationTesterMixin
from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin

# The suite looks the task of a class up by its name in these tables of transformers' own models.
MODEL_MAPPING_NAMES[VaswaniConfig.model_type] = VaswaniModel.__name__
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[VaswaniConfig.model_type] = VaswaniForConditionalGeneration.__name__


class TranslationModelTester:
    """What the suite asks of a model: a small configuration and a batch that suits it."""

    batch_size = 13
    seq_length = 7
    is_training = True
    vocab_size = 99
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    feed_forward_size = 24
    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2

    def __init__(self, config_class: type[PreTrainedConfig], **names: int) -> None:
        """`names` are the settings that this configuration calls by a name of its own."""
        self.config_class = config_class
        self.names = names

    def get_config(self) -> PreTrainedConfig:
        return self.config_class(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            max_position_embeddings=20,
            pad_token_id=self.pad_token_id,
            bos_token_id=self.bos_token_id,
            eos_token_id=self.eos_token_id,
            decoder_start_token_id=self.bos_token_id,
            **self.names,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        shape = (self.batch_size, self.seq_length)
        tokens = torch.randint(self.eos_token_id + 1, self.vocab_size, (2, *shape), device=torch_device)
        tokens[..., -1] = self.eos_token_id
        inputs = {
            "input_ids": tokens[0],
            "attention_mask": torch.ones(shape, dtype=torch.long, device=torch_device),
            "decoder_input_ids": tokens[1],
            "decoder_attention_mask": torch.ones(shape, dtype=torch.long, device=torch_device),
        }
        return self.get_config(), inputs


class ConformanceTests(ModelTesterMixin, GenerationTesterMixin):
    """The suite's tests of models and configurations, and three of ours: compiling, exporting, device maps."""

    all_model_classes: tuple[type[PreTrainedModel], ...]
    is_encoder_decoder = True
    # Opt-ins: without them the suite leaves these tests out.
    test_can_init_all_missing_weights_before_2023 = True
    _torch_compile_train_cls: type[PreTrainedModel]

    model_tester: TranslationModelTester
    config_tester: ConfigTester

    def test_config(self) -> None:
        self.config_tester.run_common_tests()

    # The suite's own tests of these three need a GPU, or a file that is not in the source distribution.

    def check_same_outputs(self, change: Callable[[PreTrainedModel, dict[str, Any]], Callable[..., Any]]) -> None:
        """What `change` makes of a model and its inputs must compute what the model does."""
        for model_class in self.all_model_classes:
            with self.subTest(model_class.__name__), torch.no_grad():
                config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
                inputs["use_cache"] = False
                model = model_class(config).to(torch_device).eval()
                torch.testing.assert_close(change(model, inputs)(**inputs)[0], model(**inputs)[0])

    def test_compile(self) -> None:
        self.check_same_outputs(lambda model, _: torch.compile(model, backend="aot_eager", fullgraph=True))

    def test_export(self) -> None:
        self.check_same_outputs(lambda model, inputs: torch.export.export(model, (), inputs).module())

    def test_device_map_that_leaves_weights_on_disk(self) -> None:
        def offload(model: PreTrainedModel, _: dict[str, Any]) -> PreTrainedModel:
            room = 0.7 * sum(parameter.nbytes for parameter in model.parameters())
            folder = TemporaryDirectory()  # the offloaded model reads from it as it runs
            self.addCleanup(folder.cleanup)
            model.save_pretrained(folder.name)
            offloaded = type(model).from_pretrained(
                folder.name, device_map="auto", max_memory={"cpu": int(room)}, offload_folder=folder.name
            )
            self.assertIn("disk", offloaded.hf_device_map.values())
            return offloaded

        self.check_same_outputs(offload)


class MarianTest(ConformanceTests, unittest.TestCase):
    all_model_classes = (MarianModel, MarianMTModel)
    _torch_compile_train_cls = MarianMTModel

    def setUp(self) -> None:
        tester = TranslationModelTester
        self.model_tester = tester(
            MarianConfig,
            encoder_attention_heads=tester.num_attention_heads,
            decoder_attention_heads=tester.num_attention_heads,
            encoder_ffn_dim=tester.feed_forward_size,
            decoder_ffn_dim=tester.feed_forward_size,
            forced_eos_token_id=tester.eos_token_id,
        )
        self.config_tester = ConfigTester(self, config_class=MarianConfig)


class VaswaniTest(ConformanceTests, unittest.TestCase):
    all_model_classes = (VaswaniModel, VaswaniForConditionalGeneration)
    _torch_compile_train_cls = VaswaniForConditionalGeneration

    def setUp(self) -> None:
        tester = TranslationModelTester
        self.model_tester = tester(
            VaswaniConfig, num_attention_heads=tester.num_attention_heads, d_ff=tester.feed_forward_size
        )
        self.config_tester = ConfigTester(self, config_class=VaswaniConfig)
