"""The GPU monitor: a program of its own that owns NVML, which can hang in the kernel and crash, and tells facts of it.

    python -m supervisor.gpu_monitor DRIVER_ROOT DEV_ROOT PROC_ROOT PERIOD_S

    libraries   where a driver root has its NVML
    looking     one look after the other, and the facts that come of it; the simulated monitor looks in the same way
    nvml        the real NVML, through nvidia-ml-py
    telling     the loop: look, tell, wait; the script of a mock node tells by it too

It writes lines of `actors.gpu.facts` to its stdout, a socket, and ends when nobody is at the other end any more. As
little as possible is imported here: every worker with GPUs has one of these processes beside it, as long as it lives.
Another program can take its place (`--gpu-monitor`), which is called with the same four arguments.
"""
