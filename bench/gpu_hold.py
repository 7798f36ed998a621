#!/usr/bin/env python3
"""Takes a GPU's memory until only so many GiB are left to others, and holds it until stdin ends.

usage: gpu_hold.py GIB      prints the bytes left, once it holds the rest. Needs the driver alone.
"""
import ctypes
import sys

CHUNK = 1 << 28


def main():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: CUDA's error {status}")

    def free():
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
        return left.value

    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    wanted = int(float(sys.argv[1]) * 2**30)
    if free() < wanted:
        sys.exit(f"expected {wanted} free bytes at least, got {free()}")
    while free() - wanted >= 1 << 21:
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(min(CHUNK, (free() - wanted) >> 21 << 21)))
    print(free(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
