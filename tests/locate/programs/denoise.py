"""A denoising loop with a small UNet of diffusers."""

import torch
from diffusers import EulerDiscreteScheduler, UNet2DModel

unet = UNet2DModel(
    sample_size=16,
    block_out_channels=(32, 32),
    layers_per_block=1,
    down_block_types=("DownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
).cuda()
scheduler = EulerDiscreteScheduler()
scheduler.set_timesteps(12, device="cuda")
with torch.no_grad():
    x = torch.randn(1, 3, 16, 16, device="cuda") * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        noise = unet(scheduler.scale_model_input(x, t), t).sample
        x = scheduler.step(noise, t, x).prev_sample
