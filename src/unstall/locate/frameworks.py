"""A table of training and inference frameworks. The table says what a step is in each framework,
and which findings each option of the framework mends.

To add a framework, add an entry to `FRAMEWORKS`. Tests check that the framework's installed package
has each option.
"""

from __future__ import annotations

import re

import msgspec

_READS = r"sync-(item|bool|other|cpu|mask|nonzero)"
_UPLOADS = r"pageable-copy|blocking-copy|blocking-pinned-copy|data-loading"


class Option(msgspec.Struct, frozen=True):
    """An option or a call of a framework that mends findings.

    Attributes:
        rules: A regular expression that matches the whole name of each rule whose findings the
            option mends.
        frame: A regular expression that is searched in frames, written as "file: function". The
            option applies only if the expression matches a frame between the event and the user's
            line.
        do: The advice to the user: which options or calls of the framework to use.
        safe_if: The condition under which `do` keeps the program correct.
        names: The objects that the advice in `do` needs. Each is written as "module:object" or
            "module:object(parameter)".
        directly: Whether `frame` must match the innermost frame that is outside of torch. If True,
            the option does not apply to events inside a model that the framework's loop calls.
        of_model: Whether `do` advises to capture only the model's forward and backward passes as a
            CUDA graph. This is the case if the framework's work around the model cannot be
            captured.
        shortens: Whether a step becomes shorter, as the replay of the finding predicts, if the user
            follows `do`.
        at_the_line: Whether the user must change the line of the finding, or the arguments in this
            line, to follow `do`.
        below: A regular expression like `frame`. The option applies only if the frame that matches `frame` is called,
            directly or not, by one that matches this expression.
        own_loop: Whether the user can follow `do` only if the steps run in a loop in the user's
            code, not in the framework's loop.
    """

    rules: str
    frame: str
    do: str
    safe_if: str
    names: tuple[str, ...] = ()
    directly: bool = False
    below: str | None = None
    of_model: bool = False
    shortens: bool = True
    own_loop: bool = False
    at_the_line: bool = False


class Framework(msgspec.Struct, frozen=True):
    """A training or inference framework.

    Attributes:
        name: The framework's name.
        step: A description of a step in this framework.
        users_line: The source text of the user's call of the framework, such as "trainer.train()".
        options: The framework's options that mend findings.
        has_loop: Whether the loop over the steps is in the framework. If False, the loop is in the
            user's code.
        loop: A regular expression for the function of the framework that contains the loop over the
            steps. It is searched in texts of the form "file: function". If the run has no optimizer
            step, each call of a model by this function is a step. None if the function is not
            known.
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
OF_LBFGS = re.compile(r"(?:.*/)?torch/optim/lbfgs\.py")
"""Matches frames of torch's LBFGS, which reads values on the host in each of its iterations. So it cannot be captured,
but what its closure computes can.
"""
_SHAPES = "shapes recur, and the host reads nothing within the model"

AROUND_A_GRAPHED_MODEL = Option(
    "",
    "",
    "the model already runs by unstall.graphed; what is left is the framework's own code around it, which no option "
    "captures: a larger batch has fewer such launches for each sample",
    "—",
    shortens=False,
)
"""An option with other advice. It is given if the model already runs as a CUDA graph, in place of
an option that advises to capture the model as one (`of_model`).
"""

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
                of_model=True,
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
                "capture the model, with a cache and a mask of one length, that of the longest prompt and its new "
                "tokens: model.forward = unstall.graphed(model.forward); model.create_masks_for_generate = lambda "
                "attention_mask, **_: attention_mask if attention_mask is None else "
                "torch.nn.functional.pad(attention_mask, (0, length - attention_mask.shape[1]), value=1); make cache = "
                "transformers.StaticCache(config=model.config, max_cache_len=length) once for each batch size, and for "
                "each call cache.reset() and generate(…, past_key_values=cache, disable_compile=True); use a larger "
                "batch",
                "the model has no sliding window and there is no beam search; docs/graphed.md has the details",
                (
                    "transformers:StaticCache(max_cache_len)",
                    "transformers:GenerationConfig.disable_compile",
                    "transformers.masking_utils:create_masks_for_generate(attention_mask)",
                ),
                of_model=True,
            ),
            Option(
                _READS,
                r"transformers/generation/",
                "generate() looks each token whether all sequences have ended: generate several prompts at once in a "
                "larger batch, so that each look serves more tokens; without a streamer, which reads each token too",
                "the prompts are independent, and padded on the left",
                directly=True,
                shortens=False,
            ),
            Option(
                _READS,
                r"transformers/masking_utils\.py",
                "generate() hands the model a mask for each token even if you give none, and the model tests on the "
                "host whether it hides anything. A CUDA graph of the model leaves the test out; without one, generate "
                "several prompts at once in a larger batch, so that each test serves more tokens",
                "the prompts are independent, and padded on the left",
                directly=True,
                below=r"transformers/generation/",
                shortens=False,
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
                r"transformers/masking_utils\.py: .*\bfind_packed_sequence_indices$",
                "give the model a mask of four dimensions (batch, 1, query, key): without a mask, it tests on the host "
                "whether sequences are packed",
                "your mask is causal, and hides what is padded",
                directly=True,
            ),
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
                of_model=True,
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
                "before accelerator.prepare, model.forward = unstall.graphed(model.forward); pad all batches to one "
                "length; a larger batch",
                _SHAPES,
                ("accelerate:Accelerator.prepare",),
                of_model=True,
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
                "your own loop calls the scheduler: a pipeline's cannot be told",
                ("diffusers:EulerDiscreteScheduler.set_timesteps(device)",),
                own_loop=True,
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
                of_model=True,
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
        "torch.nn.Transformer",
        has_loop=False,
        step="one call of the module",
        users_line="transformer(src, tgt, tgt_mask=mask)",
        options=(
            Option(
                _READS,
                r"torch/nn/modules/transformer\.py: .*_detect_is_causal_mask$",
                "pass tgt_is_causal (src_is_causal, or is_causal to an encoder) with each mask: without it, the mask "
                "is compared with a causal one on the host",
                "it is True only for a causal mask",
                ("torch.nn:Transformer.forward(tgt_is_causal)", "torch.nn:TransformerEncoder.forward(is_causal)"),
                at_the_line=True,
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
    Framework(
        "torch.optim.LBFGS",
        has_loop=False,
        step="one call of optimizer.step(closure)",
        users_line="optimizer.step(closure)",
        options=(
            Option(
                r"sync-(item|bool|other)",
                OF_LBFGS.pattern,
                "these waits are torch's own, and no option of LBFGS removes them: in each of its iterations it reads "
                "values on the host, to decide how far to go and when to stop. If the closure does more work, such as "
                "on a larger batch, fewer waits come for each sample; Adam(fused=True) waits for nothing",
                "another optimizer reaches as good a result",
                ("torch.optim:LBFGS(max_iter)", "torch.optim:Adam(fused)"),
                shortens=False,
            ),
            Option(
                "launch-bound|tiny-kernels",
                OF_LBFGS.pattern,
                "put what the closure computes (zero_grad, the loss, backward) into a function that reads nothing on "
                "the host, capture that in a CUDA graph (unstall.graphed), and call it in the closure; the work of "
                "LBFGS around it cannot be captured, since it reads values on the host",
                "shapes are fixed, and the host reads no values within the graph",
                of_model=True,
            ),
        ),
    ),
)
