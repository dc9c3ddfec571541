"""Training and inference frameworks: what a step is in each, and which of its options do what a finding asks for.

To add a framework, add rows to `FRAMEWORKS`. Tests look for each option in the installed package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from unstall.frameworks import is_installed, top_module
from unstall.locate.places import Places, programs
from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import by_text

_LONGEST = 4096  # characters of a file and a function that are looked at
_MOSTLY = 0.5  # of a finding's events
_OF_LAUNCHES = ("launch-bound", "tiny-kernels")
_READS = r"sync-(item|bool|other|cpu|mask|nonzero)"
_UPLOADS = r"pageable-copy|blocking-copy|blocking-pinned-copy|data-loading"


@dataclass(frozen=True, slots=True)
class Option:
    """What a framework offers against the findings of some rules.

    Attributes:
        rules: A pattern for the whole name of a rule.
        frame: A pattern found in "file: function" of a frame between the event and the program's own line.
        do: What to do, by options or calls of the framework.
        safe_if: The condition under which `do` keeps the program correct.
        names: What `do` relies on, as "module:object", or "module:object(parameter)".
        directly: Whether the frame must be the innermost one outside of torch. Then a loop's option does not apply to
            events inside the model that the loop calls.
    """

    rules: str
    frame: str
    do: str
    safe_if: str
    names: tuple[str, ...] = ()
    directly: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: what its step is, which of its calls the user's line makes, and its options.

    `has_loop`: whether the loop over the steps is the framework's, not the user's.

    `loop`: a pattern found in "file: function" of a frame. If no optimizer shows the steps, this frame's calls of a
    model are the steps.
    """

    name: str
    step: str
    users_line: str
    options: tuple[Option, ...]
    has_loop: bool = True
    loop: str | None = None


_TRAINERS_LOOP = (
    r"transformers/trainer\.py: .*\b(train|_inner_training_loop|_run_epoch|training_step|_prepare_inputs?)$"
)
LEAVES_WAITS_OUT = re.compile(r"(?:.*/)?transformers/masking_utils\.py")
"""Files of libraries that ask whether they are captured, and then do not wait."""
_SHAPES = "shapes recur, and the host reads nothing within the model"

FRAMEWORKS = (
    Framework(
        "Trainer of transformers",
        step="one optimizer step of train(): gradient_accumulation_steps batches",
        users_line="trainer.train()",
        options=(
            Option(
                _READS,
                r"transformers/trainer\.py: .*\b(_run_epoch|_inner_training_loop)$",
                "pass logging_nan_inf_filter=False to TrainingArguments: it has each step's loss tested on the host",
                "a loss of nan or inf may appear in the logs",
                ("transformers:TrainingArguments(logging_nan_inf_filter)",),
                directly=True,
            ),
            Option(
                _READS,
                r"transformers/trainer\.py: .*\b_maybe_log_save_evaluate$",
                "pass a larger logging_steps to TrainingArguments: the Trainer reads the loss each time that it logs",
                "fewer lines in the log are enough",
                ("transformers:TrainingArguments(logging_steps)",),
            ),
            Option(
                r"sync-\w+",
                r"transformers/trainer\.py: .*\b_clip_grad_norm$",
                "pass max_grad_norm=0 to TrainingArguments, or read the norm seldom (a larger logging_steps)",
                "the model trains without clipping",
                ("transformers:TrainingArguments(max_grad_norm)", "transformers:TrainingArguments(logging_steps)"),
            ),
            Option(
                _UPLOADS,
                _TRAINERS_LOOP,
                "pass to TrainingArguments dataloader_pin_memory=True, dataloader_num_workers=4 or more, "
                "dataloader_persistent_workers=True and accelerator_config={'non_blocking': True}",
                "the dataset can be read from several processes",
                (
                    "transformers:TrainingArguments(dataloader_pin_memory)",
                    "transformers:TrainingArguments(dataloader_num_workers)",
                    "transformers:TrainingArguments(dataloader_persistent_workers)",
                    "transformers:TrainingArguments(accelerator_config)",
                    "transformers.trainer_pt_utils:AcceleratorConfig(non_blocking)",
                ),
            ),
            Option(
                "launch-bound|tiny-kernels",
                _TRAINERS_LOOP,
                "before you make the Trainer, model.forward = unstall.graphed(model.forward); pad all batches to one "
                "length (DataCollatorWithPadding(padding='max_length', max_length=…)); or pass torch_compile=True to "
                "TrainingArguments; a larger per_device_train_batch_size",
                _SHAPES,
                (
                    "transformers:TrainingArguments(torch_compile)",
                    "transformers:TrainingArguments(per_device_train_batch_size)",
                    "transformers:DataCollatorWithPadding(max_length)",
                ),
            ),
        ),
    ),
    Framework(
        "generate of transformers",
        step="one token of generate()",
        users_line="model.generate(…)",
        loop=r"transformers/generation/utils\.py: .*\b_(sample|beam_search|assisted_decoding)$",
        options=(
            Option(
                "launch-bound|tiny-kernels",
                r"transformers/generation/",
                "give generate() a cache of fixed size and keep it (past_key_values=transformers.StaticCache(…), "
                "disable_compile=True), and capture the model: model.forward = unstall.graphed(model.forward); use a "
                "larger batch",
                "the model has no sliding window and there is no beam search; docs/fix.md has the details",
                (
                    "transformers:StaticCache(max_cache_len)",
                    "transformers:GenerationConfig.disable_compile",
                ),
            ),
            Option(
                _READS,
                r"transformers/generation/",
                "generate() looks each token whether all sequences have ended: generate several prompts at once in a "
                "larger batch, so that each look serves more tokens; without a streamer, which reads each token too",
                "the prompts are independent, and padded on the left",
                directly=True,
            ),
        ),
    ),
    Framework(
        "models of transformers",
        has_loop=False,
        step="one call of the model",
        users_line="model(**batch)",
        options=(
            Option(
                _READS,
                r"transformers/masking_utils\.py",
                "give the model no attention_mask if nothing is padded, or a mask of four dimensions (batch, 1, query, "
                "key): it tests a mask of two on the host",
                "no batch is padded, or your mask says the same",
                directly=True,
            ),
        ),
    ),
    Framework(
        "Lightning",
        step="one training_step() and its optimizer step",
        users_line="trainer.fit(model)",
        options=(
            Option(
                _READS,
                r"(lightning/pytorch|pytorch_lightning)/(loops/utilities\.py: .*\bcheck_finite_loss"
                r"|core/module\.py: .*\bbackward|plugins/precision/precision\.py: .*\bbackward)$",
                "pass detect_anomaly=False to Trainer: with it, each gradient is tested on the host",
                "a loss or gradient of nan may be found later",
                ("lightning.pytorch:Trainer(detect_anomaly)",),
            ),
            Option(
                _READS,
                r"(lightning/pytorch|pytorch_lightning)/(callbacks/progress|trainer/connectors/logger_connector)/",
                "log without prog_bar=True (self.log), or pass enable_progress_bar=False to Trainer, and a larger "
                "log_every_n_steps: each value shown is read on the host",
                "the values may be looked at less often",
                (
                    "lightning.pytorch:Trainer(enable_progress_bar)",
                    "lightning.pytorch:Trainer(log_every_n_steps)",
                    "lightning.pytorch:LightningModule.log(prog_bar)",
                ),
            ),
            Option(
                _UPLOADS,
                r"(lightning/(pytorch|fabric)|pytorch_lightning)/",
                "make your DataLoader with pin_memory=True, num_workers=4 or more and persistent_workers=True: "
                "Lightning copies pinned batches without waiting",
                "the dataset can be read from several processes",
            ),
            Option(
                "launch-bound|tiny-kernels",
                r"(lightning/pytorch|pytorch_lightning)/",
                "in your LightningModule's __init__, self.net.forward = unstall.graphed(self.net.forward) for the "
                "network in it; the step's other launches stay; a larger batch",
                _SHAPES,
            ),
        ),
    ),
    Framework(
        "Accelerate",
        has_loop=False,
        step="one optimizer.step() of your loop",
        users_line="accelerator.backward(loss), or the loop over the prepared loader",
        options=(
            Option(
                _UPLOADS,
                r"accelerate/(data_loader|utils/operations)\.py",
                "make the Accelerator with dataloader_config=accelerate.utils.DataLoaderConfiguration("
                "non_blocking=True), and your DataLoader with pin_memory=True and num_workers=1 or more",
                "the dataset can be read from another process",
                (
                    "accelerate:Accelerator(dataloader_config)",
                    "accelerate.utils:DataLoaderConfiguration(non_blocking)",
                ),
            ),
            Option(
                r"sync-\w+",
                r"accelerate/optimizer\.py|accelerate/accelerator\.py: .*\bunscale_gradients$",
                "make the Accelerator with mixed_precision='bf16', which needs no GradScaler",
                "the model trains in bfloat16 (same range as float32)",
                ("accelerate:Accelerator(mixed_precision)",),
            ),
            Option(
                "launch-bound|tiny-kernels",
                r"accelerate/",
                "before accelerator.prepare, model.forward = unstall.graphed(model.forward); a larger batch",
                _SHAPES,
                ("accelerate:Accelerator.prepare",),
            ),
        ),
    ),
    Framework(
        "diffusers",
        step="one denoising step of the pipeline",
        users_line="pipe(prompt)",
        loop=r"diffusers/pipelines/.*: .*\b__call__$",
        options=(
            Option(
                _READS,
                r"diffusers/schedulers/.*: .*\b(index_for_timestep|_init_step_index)$",
                "call pipe.scheduler.set_begin_index(0) after set_timesteps: the scheduler then need not look the "
                "first timestep up on the device",
                "sampling begins at the first timestep",
                ("diffusers:EulerDiscreteScheduler.set_begin_index",),
            ),
            Option(
                _READS,
                r"diffusers/schedulers/",
                "give the scheduler timesteps in CPU memory: scheduler.set_timesteps(n, device='cpu'), and numbers "
                "(t.item()) to its step(); only the model takes a tensor on the device",
                "your own loop calls the scheduler",
                ("diffusers:EulerDiscreteScheduler.set_timesteps(device)",),
            ),
            Option(
                "launch-bound|tiny-kernels",
                r"diffusers/(models|pipelines)/",
                "capture the model that each step runs, and put the timestep on the device first, since schedulers "
                "keep it on the host: graph = unstall.graphed(pipe.unet.forward), then pipe.unet.forward = lambda x, "
                "t, *args, **kwargs: graph(x, torch.as_tensor(t, device=x.device), *args, **kwargs); a "
                "pipe.transformer likewise",
                "shapes recur: the same image size and batch",
                ("diffusers:UNet2DModel.forward(timestep)",),
            ),
        ),
    ),
    Framework(
        "timm",
        has_loop=False,
        step="one optimizer step of the train loop",
        users_line="the loop over the loader of create_loader",
        options=(
            Option(
                _UPLOADS,
                r"timm/data/loader\.py",
                "pass pin_memory=True, use_prefetcher=True, persistent_workers=True and a larger num_workers to "
                "timm.data.create_loader",
                "the dataset can be read from several processes",
                (
                    "timm.data:create_loader(pin_memory)",
                    "timm.data:create_loader(use_prefetcher)",
                    "timm.data:create_loader(persistent_workers)",
                    "timm.data:create_loader(num_workers)",
                ),
            ),
            Option(
                r"sync-\w+",
                r"timm/utils/cuda\.py",
                "train in bfloat16 (--amp --amp-dtype bfloat16), without NativeScaler, which reads found_inf",
                "the model trains in bfloat16 (same range as float32)",
                ("timm.utils:NativeScaler",),
            ),
            Option(
                "launch-bound|tiny-kernels",
                r"timm/utils/model_ema\.py",
                "average the model by timm.utils.ModelEmaV3(model, foreach=True), not ModelEmaV2: few launches for "
                "all parameters",
                "model and average are on the same device",
                ("timm.utils:ModelEmaV3(foreach)",),
            ),
        ),
    ),
    Framework(
        "DistributedDataParallel and FSDP",
        has_loop=False,
        step="one optimizer.step() of your loop",
        users_line="the wrapped model's call",
        options=(
            Option(
                r"sync-\w+",
                r"torch/distributed/fsdp/_(limiter_utils|runtime_utils)\.py",
                "make FullyShardedDataParallel with limit_all_gathers=False: the host waits so as not to gather too "
                "many parameters at once",
                "the device has memory for more gathered parameters",
                ("torch.distributed.fsdp:FullyShardedDataParallel(limit_all_gathers)",),
            ),
            Option(
                "exposed-comm",
                r"torch/distributed/fsdp/_(runtime|limiter|exec_order)_utils\.py",
                "make FullyShardedDataParallel with forward_prefetch=True and "
                "backward_prefetch=BackwardPrefetch.BACKWARD_PRE, which gather parameters ahead",
                "the device has memory for one more gathered layer",
                (
                    "torch.distributed.fsdp:FullyShardedDataParallel(forward_prefetch)",
                    "torch.distributed.fsdp:FullyShardedDataParallel(backward_prefetch)",
                    "torch.distributed.fsdp:BackwardPrefetch.BACKWARD_PRE",
                ),
            ),
            Option(
                "exposed-comm",
                r"torch/nn/parallel/distributed\.py: .*\b(_sync_buffers|_pre_forward|_post_forward)$",
                "make DistributedDataParallel with broadcast_buffers=False: it sends buffers around before each "
                "forward pass",
                "buffers (running means of BatchNorm) may differ between ranks, or are synchronized otherwise",
                ("torch.nn.parallel:DistributedDataParallel(broadcast_buffers)",),
            ),
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class FrameworkCode:
    """Finds whose code the frames of a run are, and which option of a framework helps there. Answers are cached."""

    places: Places
    _found: dict[str, Bool] = field(default_factory=dict)

    def option_for(self, rule: str, place: int, rows: I64) -> tuple[Framework, Option] | None:
        """Returns the option that helps against most of these host rows of a finding at `place`, or None.

        If frameworks call each other, as the Trainer calls Accelerate, only the outermost framework's options count. Of
        these, the option of the innermost frame is returned. The framework's code must be between the event and the
        user's code. A callback of the user's that the framework calls is the user's code. Launches belong to the
        framework's loop, whoever wrote the model.
        """
        places, stacks = self.places, self.places.timeline.stacks
        options = [(each, option) for each in FRAMEWORKS for option in each.options if re.fullmatch(option.rules, rule)]
        if not len(stacks) or not len(rows) or not options:
            return None
        stack = places.timeline.host.stack[rows]
        of_launches = rule in _OF_LAUNCHES
        users_loop = of_launches and self._is_own_place(place)
        ranked = []
        for framework, option in options:
            mine = self._matching(option.frame)
            if not mine.any() or (users_loop and not framework.has_loop):
                continue
            barrier = places.is_user_frame if option.directly else self._own & (not of_launches)
            found = np.append(nearest(stacks.parent, mine | barrier), -1)[stack]
            helped = found[np.append(mine, False)[found]]
            if len(helped) > _MOSTLY * len(rows):
                ranked.append((float(np.median(self._depth[helped])), framework, option))
        if not ranked:
            return None
        outermost = min(ranked, key=lambda each: each[0])[1]
        _, _, best = max((each for each in ranked if each[1] is outermost), key=lambda each: each[0])
        return outermost, best

    def package_of(self, file: str | None) -> str | None:
        """Returns the installed package that a file is part of, or None if the file is the user's own.

        The program's file is the user's own. If the user named files by globs, all files count as the user's own.
        """
        if file is None or self.places.are_named or file in self._programs or not is_installed(file):
            return None
        return top_module(file)

    def _is_own_place(self, place: int) -> bool:
        lines = self.places.timeline.lines
        if not 0 <= place < len(lines):
            return False
        return self.package_of(self.places.timeline.text(int(lines.file[place]))) is None

    @cached_property
    def _programs(self) -> set[str]:
        return {self.places.timeline.strings[index] for index in programs(self.places.timeline)}

    @cached_property
    def _depth(self) -> I32:
        return depths(self.places.timeline.stacks.parent)

    @cached_property
    def _own(self) -> Bool:
        """Which rows of Stacks are the user's own: neither a framework's nor in an installed package."""
        timeline = self.places.timeline
        own = by_text(timeline.lines.file, lambda index: self.package_of(timeline.text(index)) is None) == 1
        mine: Bool = self.places.is_user_frame & own[timeline.stacks.line]
        return mine

    @cached_property
    def _functions(self) -> tuple[list[str], I64]:
        """("file: function" of each distinct function, the index of each row of Stacks among them)."""
        timeline, lines = self.places.timeline, self.places.timeline.lines
        keys = lines.file.astype(np.int64) * (len(timeline.strings) + 1) + lines.function
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        named = [
            f"{timeline.text(int(lines.file[i]))}: {timeline.text(int(lines.function[i]))}" for i in first.tolist()
        ]
        return named, which[timeline.stacks.line].astype(np.int64)

    def _matching(self, frame: str) -> Bool:
        if frame not in self._found:
            named, which = self._functions
            pattern = re.compile(frame)
            found = np.array([pattern.search(each[:_LONGEST]) is not None for each in named], dtype=np.bool_)
            self._found[frame] = found[which]
        return self._found[frame]
