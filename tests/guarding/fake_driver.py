"""A driver, a runtime that calls it by pointers, and operators named as torch's, compiled for the tests."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from pathlib import Path

COMPILER = shutil.which((sysconfig.get_config_var("CXX") or "c++").split()[0])

_DRIVER = """
#include <unistd.h>
typedef long W;
#define DRIVER extern "C" W
static W calls;
DRIVER made(void) { return calls; }
DRIVER cuStreamSynchronize(W stream) { calls++; usleep(2000); return 0; }
DRIVER cuEventSynchronize(W event) { calls++; return 0; }
DRIVER cuCtxSynchronize(void) { calls++; return 0; }
DRIVER cuMemAlloc_v2(W *pointer, W bytes) { calls++; *pointer = bytes; return 0; }
DRIVER cuMemcpyDtoHAsync_v2(W to, W from, W bytes, W stream) { calls++; usleep(3000); return 0; }
DRIVER cuMemCreate(W *handle, W bytes) { calls++; usleep(1000); *handle = bytes; return 0; }
DRIVER cuMemSetAccess(W pointer, W bytes) { return 0; }
DRIVER cuMemFree_v2(W pointer) { calls++; usleep(1000); return 0; }
DRIVER cuMemcpyHtoDAsync_v2(W to, W from, W bytes, W stream) { calls++; usleep(3000); return 0; }
DRIVER cuLaunchKernel(W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k) { return a + 2 * k; }
/* Host memory that is pinned has an address above 1000. */
extern "C" int cuPointerGetAttribute(void *data, int attribute, unsigned long pointer)
{ *(unsigned *)data = 1; return pointer > 1000 ? 0 : 1; }
"""
_RUNTIME = """
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
typedef long W;
typedef W (*F)(...);
static F synchronize, event, device, download, upload, launch, allocate, release, create, set_access;
static W pause_us; /* between calls that belong together */
extern "C" void pause_for(W us) { pause_us = us; }
extern "C" int load(const char *path)
{
    void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    synchronize = (F)dlsym(driver, "cuStreamSynchronize");
    event = (F)dlsym(driver, "cuEventSynchronize");
    device = (F)dlsym(driver, "cuCtxSynchronize");
    download = (F)dlsym(driver, "cuMemcpyDtoHAsync_v2");
    upload = (F)dlsym(driver, "cuMemcpyHtoDAsync_v2");
    launch = (F)dlsym(driver, "cuLaunchKernel");
    allocate = (F)dlsym(driver, "cuMemAlloc_v2");
    release = (F)dlsym(driver, "cuMemFree_v2");
    create = (F)dlsym(driver, "cuMemCreate");
    set_access = (F)dlsym(driver, "cuMemSetAccess");
    return driver != 0;
}
extern "C" W stream_synchronize(W stream) { return synchronize(stream); }
extern "C" W event_synchronize(W stream) { return event(stream); }
extern "C" W device_synchronize(void) { return device(); }
extern "C" W memcpy_to_host(W to, W stream) { return download(to, 0L, 4L, stream); }
extern "C" W memcpy_to_device(W from, W stream, W bytes) { return upload(0L, from, bytes, stream); }
extern "C" W free_memory(W pointer) { return release(pointer); }
extern "C" void free_row(W count) { for (; count; count--, usleep(pause_us)) release(count); }
extern "C" W piece(W bytes) { W handle; return create(&handle, bytes); }
extern "C" W segment(W count)
{
    W handle, error = 0;
    for (; count && !error; count--, usleep(pause_us)) error = create(&handle, count);
    error = error ? error : set_access(0L, 0L);
    return error;
}
static void *synchronize_in_thread(void *stream) { return (void *)synchronize((W)stream); }
extern "C" W join_a_thread_that_waits(W stream)
{
    pthread_t thread;
    void *error;
    pthread_create(&thread, 0, synchronize_in_thread, (void *)stream);
    pthread_join(thread, &error);
    return (W)error;
}
extern "C" W launch_kernel(W a, W k) { return launch(a, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, k); }
extern "C" W memory(W bytes) { W pointer = 0; W error = allocate(&pointer, bytes); return error ? -error : pointer; }
#define AFTER asm volatile("") /* so that no call is in the place of its caller */
namespace at { namespace _ops {
struct _local_scalar_dense {
    __attribute__((noinline)) static W call(W to, W stream)
    {
        W error = memcpy_to_host(to, stream);
        usleep(pause_us);
        error = error ? error : stream_synchronize(stream);
        AFTER;
        return error;
    }
};
struct item {
    __attribute__((noinline)) static W call(W to, W stream)
    { W error = _local_scalar_dense::call(to, stream); AFTER; return error; }
};
#define UPLOAD(NAME) struct NAME { \\
    __attribute__((noinline)) static W call(W from, W stream, W bytes) \\
    { \\
        W error = memcpy_to_device(from, stream, bytes); \\
        usleep(pause_us); \\
        error = error ? error : stream_synchronize(stream); \\
        AFTER; \\
        return error; \\
    } \\
};
UPLOAD(_to_copy)
UPLOAD(lift_fresh_copy)
struct index_put_ {
    __attribute__((noinline)) static W call(W from, W stream)
    { W error = from ? memcpy_to_device(from, stream, 1 << 20) : stream_synchronize(stream); AFTER; return error; }
};
struct map {
    __attribute__((noinline)) static W call(W (*function)(W), W stream)
    { W error = function(stream); AFTER; return error; }
};
struct copy_ {
    __attribute__((noinline)) static W call(W from, W stream)
    { W error = memcpy_to_device(from, stream, 1 << 20); AFTER; return error; }
};
struct sum_dim_IntList {
    __attribute__((noinline)) static W call(W stream) { W error = stream_synchronize(stream); AFTER; return error; }
};
W (*keep)(W, W) = _local_scalar_dense::call;
} }
extern "C" W upload_blocking(W from, W stream)
{ W error = at::_ops::_to_copy::call(from, stream, 1 << 20); AFTER; return error; }
extern "C" W upload_small(W from, W stream)
{ W error = at::_ops::_to_copy::call(from, stream, 64); AFTER; return error; }
extern "C" W lift(W from, W stream)
{ W error = at::_ops::lift_fresh_copy::call(from, stream, 1 << 20); AFTER; return error; }
extern "C" W put(W from, W stream) { W error = at::_ops::index_put_::call(from, stream); AFTER; return error; }
extern "C" W map(W (*function)(W), W stream) { W error = at::_ops::map::call(function, stream); AFTER; return error; }
extern "C" W upload_then_sum(W from, W stream)
{
    W error = at::_ops::copy_::call(from, stream);
    error = error ? error : at::_ops::sum_dim_IntList::call(stream);
    AFTER;
    return error;
}
extern "C" W sum(W stream) { W error = at::_ops::sum_dim_IntList::call(stream); AFTER; return error; }
extern "C" W item(W to, W stream) { W error = at::_ops::item::call(to, stream); AFTER; return error; }
"""
# What is in it holds a lock as it calls the runtime.
_ALLOCATOR = """
#include <pthread.h>
typedef long W;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
extern "C" W memory(W bytes);
extern "C" W allocate(W bytes)
{ pthread_mutex_lock(&mutex); W result = memory(bytes); pthread_mutex_unlock(&mutex); return result; }
extern "C" void take_the_lock(void) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
"""
# What is in it calls the runtime from a part of the interpreter's loop that has no name of its own.
_INTERPRETER = """
typedef long W;
extern "C" W stream_synchronize(W stream);
extern "C" W _PyEval_EvalFrameDefault(void) { return 0; }
static W part(W stream) { W error = stream_synchronize(stream); asm volatile(""); return error; }
extern "C" W (*const part_of_loop)(W) = part;
"""


class Libraries:
    """`driver` is the driver's path. `free` calls the runtime without the GIL, as torch does, `held` with it.

    `allocator` is called without the GIL and holds a lock meanwhile. `locking` waits for that lock with the GIL.
    """

    def __init__(self, folder: Path, name: str = "runtime") -> None:
        self.driver = driver_in(folder)
        path = compiled(folder, name, _RUNTIME, "-ldl")
        self.free, self.held = ctypes.CDLL(path), ctypes.PyDLL(path)
        assert self.free.load(self.driver.encode())
        self.path, options = path, (f"-L{folder}", f"-l{name}", f"-Wl,-rpath,{folder}")
        interpreter = ctypes.CDLL(compiled(folder, "interpreter", _INTERPRETER, *options))
        self.part_of_loop = ctypes.c_void_p.in_dll(interpreter, "part_of_loop")
        allocator = compiled(folder, "c10_cuda", _ALLOCATOR, *options)
        self.allocator, self.locking = (
            ctypes.CDLL(allocator),
            ctypes.PyDLL(allocator),
        )  # and so without and with the GIL
        self.made = ctypes.CDLL(self.driver).made


def driver_in(folder: Path) -> str:
    """The path of the driver, which is compiled if it is not there."""
    path = folder / "libdriver.so"
    return str(path) if path.exists() else compiled(folder, "driver", _DRIVER)


def compiled(folder: Path, name: str, text: str, *options: str) -> str:
    assert COMPILER
    source, library = folder / f"{name}.cpp", folder / f"lib{name}.so"
    source.write_text(text)
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-w", "-o", str(library), str(source), *options]
    subprocess.run(command, check=True, timeout=60)
    return str(library)
