# SPDX-License-Identifier: Apache-2.0
"""Trains the U-Net of Stable Diffusion 2 on random latents by diffusers; prints "images: N", the total of all devices, after each
step of the first rank. Started by torchrun, or alone on one device."""
import argparse
import os

import diffusers
import torch


def unet(image, channels, context):
    blocks = len(channels) - 1
    return diffusers.UNet2DConditionModel(
        sample_size=image // 8, in_channels=4, out_channels=4, block_out_channels=channels, layers_per_block=2,
        down_block_types=["CrossAttnDownBlock2D"] * blocks + ["DownBlock2D"],
        up_block_types=["UpBlock2D"] + ["CrossAttnUpBlock2D"] * blocks,
        attention_head_dim=[max(1, c // 64) for c in channels], cross_attention_dim=context, use_linear_projection=True)


def step(network, noise_of, optimizer, scaler, latents, text):
    noise = torch.randn_like(latents)
    times = torch.randint(0, noise_of.config.num_train_timesteps, (len(latents),), device=latents.device)
    noisy, wanted = noise_of.add_noise(latents, noise, times), noise_of.get_velocity(latents, noise, times)
    with torch.autocast(latents.device.type, torch.float16 if latents.is_cuda else torch.bfloat16, enabled=latents.is_cuda):
        got = network(noisy, times, text).sample
    loss = torch.nn.functional.mse_loss(got.float(), wanted)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def train(o):
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
    network = unet(o.image, o.channels, o.context).to(device)
    if ranks > 1:
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl")
        network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[device.index])
    noise_of = diffusers.DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type="v_prediction")
    optimizer = torch.optim.AdamW(network.parameters(), 1.25e-7)
    scaler = torch.cuda.amp.GradScaler(enabled=device.type == "cuda")
    latents = torch.randn(o.batch, 4, o.image // 8, o.image // 8, device=device)
    text = torch.randn(o.batch, 77, o.context, device=device)
    for i in range(o.steps):
        loss = step(network, noise_of, optimizer, scaler, latents, text)
        if not loss.isfinite():  # this also waits until the step is over
            raise SystemExit(f"The loss of step {i + 1} is not finite.")
        if rank == 0:
            print("images:", (i + 1) * o.batch * ranks, flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--batch", type=int, default=16, help="images of each device and step")
    options.add_argument("--image", type=int, default=512)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--channels", type=lambda text: [int(c) for c in text.split(",")], default=[320, 640, 1280, 1280])
    options.add_argument("--context", type=int, default=1024)
    train(options.parse_args())


if __name__ == "__main__":
    main()
