"""Tensors that processes share (torch.multiprocessing): a child on the second GPU reads and writes one of the parent's on
the first, and gives one of its own back. Prints what each got; every number is exact.
"""

import torch
import torch.multiprocessing as multiprocessing


def child(given, answers, read) -> None:
    torch.cuda.set_device(1)
    for _ in range(3):
        tensor = given.get()
        answers.put(tensor.to("cuda:1") * 2)
        tensor += 1
        torch.cuda.synchronize(0)
        del tensor
        answers.put("written")
        read.wait()
        read.clear()


def main() -> None:
    context = multiprocessing.get_context("spawn")
    given, answers, read = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=child, args=(given, answers, read))
    process.start()
    for size in (1000, 700_000, 9_000_000):
        tensor = torch.arange(size, device="cuda:0") % 1000
        before = int(tensor.sum())
        given.put(tensor)
        twice = answers.get()
        assert answers.get() == "written"
        print(size, before, twice.device, int(twice.sum()), int(tensor.sum()), int(tensor[size - 1]), flush=True)
        del twice, tensor
        read.set()
    process.join()
    print("child", process.exitcode)


if __name__ == "__main__":
    main()
