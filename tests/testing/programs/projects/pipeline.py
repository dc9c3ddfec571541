"""A pipeline of diffusers, with a small UNet."""

import pytest
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import unstall

STEPS = 6
OWN = 7  # the pipeline's own waits: each step puts its number on the GPU, and the images are read at the end


class Planted(DDPMScheduler):
    def step(self, noise, *args, **kwargs):
        self.finite = bool(noise.isfinite().all())  # planted
        return super().step(noise, *args, **kwargs)


class Mended(DDPMScheduler):
    def step(self, noise, *args, **kwargs):
        self.finite = noise.isfinite().all()
        return super().step(noise, *args, **kwargs)


def pipeline(scheduler):
    unet = UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    pipeline = DDPMPipeline(unet, scheduler).to("cuda")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture
def planted():
    return pipeline(Planted())


@pytest.fixture
def mended():
    return pipeline(Mended())


@pytest.mark.limit_syncs(OWN)
def test_planted(planted):
    planted(num_inference_steps=STEPS, output_type="np")


@pytest.mark.limit_syncs(OWN)
def test_mended(mended):
    mended(num_inference_steps=STEPS, output_type="np")


def test_steps_are_found(mended):
    with unstall.virtual_gpu("h200") as gpu:
        mended(num_inference_steps=STEPS, output_type="np")
    assert gpu.explain().result.steps.count == STEPS - 1  # from one call of the UNet to the next
