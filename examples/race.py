"""A sum on one stream of what another is still writing: on a GPU it is wrong now and then, and no error says so."""

import torch


def main() -> None:
    side = torch.cuda.Stream()
    noise = torch.empty(4096, 4096, device="cuda")
    noise.normal_()
    with torch.cuda.stream(side):  # lacks side.wait_stream(torch.cuda.current_stream())
        total = noise.sum()
    side.synchronize()
    print(f"mean {total.item() / noise.numel():.6f}")


if __name__ == "__main__":
    main()
