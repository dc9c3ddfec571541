"""torch.cuda.FloatTensor and the others, and the default type of tensors."""

import json
import warnings

import torch

warnings.simplefilter("ignore")


def main() -> None:
    told = {}
    for name in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "BoolTensor"):
        kind = getattr(torch.cuda, name)
        made = kind([1, 0, 2])
        told[name] = [made.type(), made.tolist(), isinstance(made, kind), isinstance(made.cpu(), kind), kind.is_cuda]
    told["by sizes"] = list(torch.cuda.FloatTensor(2, 3).shape)
    told["type()"] = torch.zeros(2).type(torch.cuda.HalfTensor).type()
    torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    told["default"] = [torch.zeros(2).type(), torch.tensor([1.5]).type(), torch.Tensor([1]).type()]
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    told["by name"] = [torch.rand(2).type(), (torch.eye(2) @ torch.ones(2)).tolist()]
    told["kind after that"] = torch.cuda.FloatTensor.is_cuda
    torch.set_default_tensor_type(torch.FloatTensor)
    told["back"] = torch.zeros(2).type()
    try:
        torch.set_default_tensor_type(torch.cuda.sparse.FloatTensor)
    except (TypeError, RuntimeError) as error:
        told["sparse"] = str(error)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
