"""Lists the CUDA driver calls that are recorded: calls that launch work, calls that wait, and calls
that allocate or free memory.

Every CUDA runtime call of these kinds makes one of these driver calls. CUPTI identifies driver
functions by a "callback id". CUPTI never reuses an id: the ids are the same from CUDA 11.7 to 13.5
(`cupti_driver_cbid.h`).
"""

from __future__ import annotations


def _numbered(text: str) -> dict[int, str]:
    words = text.split()
    return dict(zip(map(int, words[::2]), words[1::2], strict=True))


DRIVER: dict[int, str] = _numbered(
    """
    17 cuCtxSynchronize   19 cuModuleLoadData   20 cuModuleLoadDataEx   21 cuModuleLoadFatBinary
    33 cuMemFree   38 cuMemFreeHost   39 cuMemHostAlloc   119 cuEventRecord   120 cuEventQuery
    121 cuEventSynchronize   125 cuStreamQuery   126 cuStreamSynchronize   216 cuMemsetD8Async
    218 cuMemsetD16Async   220 cuMemsetD32Async   222 cuMemsetD2D8Async   224 cuMemsetD2D16Async
    226 cuMemsetD2D32Async   243 cuMemAlloc_v2   244 cuMemAllocPitch_v2   245 cuMemFree_v2
    249 cuMemsetD8_v2   250 cuMemsetD16_v2   251 cuMemsetD32_v2   276 cuMemcpyHtoD_v2
    277 cuMemcpyHtoDAsync_v2   278 cuMemcpyDtoH_v2   279 cuMemcpyDtoHAsync_v2   280 cuMemcpyDtoD_v2
    281 cuMemcpyDtoDAsync_v2   287 cuMemcpy2D_v2   288 cuMemcpy2DUnaligned_v2   289 cuMemcpy2DAsync_v2
    290 cuMemcpy3D_v2   291 cuMemcpy3DAsync_v2   294 cuMemAllocHost_v2   295 cuStreamWaitEvent
    301 cuMemHostRegister   302 cuMemHostUnregister   305 cuMemcpy   306 cuMemcpyAsync   307 cuLaunchKernel
    318 cuMemcpyPeer   319 cuMemcpyPeerAsync   320 cuMemcpy3DPeer   321 cuMemcpy3DPeerAsync
    371 cuMemAllocManaged   379 cuMemHostRegister_v2   397 cuMemcpyHtoD_v2_ptds   398 cuMemcpyDtoH_v2_ptds
    399 cuMemcpyDtoD_v2_ptds   408 cuMemcpy_ptds   418 cuMemcpyAsync_ptsz   421 cuMemcpyHtoDAsync_v2_ptsz
    422 cuMemcpyDtoHAsync_v2_ptsz   423 cuMemcpyDtoDAsync_v2_ptsz   424 cuMemcpy2DAsync_v2_ptsz
    425 cuMemcpy3DAsync_v2_ptsz   426 cuMemcpyPeerAsync_ptsz   428 cuMemsetD8Async_ptsz
    429 cuMemsetD16Async_ptsz   430 cuMemsetD32Async_ptsz   436 cuStreamWaitEvent_ptsz
    439 cuStreamQuery_ptsz   440 cuStreamSynchronize_ptsz   441 cuEventRecord_ptsz   442 cuLaunchKernel_ptsz
    477 cuLaunchCooperativeKernel   478 cuLaunchCooperativeKernel_ptsz
    480 cuLaunchCooperativeKernelMultiDevice   514 cuGraphLaunch   515 cuGraphLaunch_ptsz   549 cuMemCreate
    550 cuMemRelease   551 cuMemMap   552 cuMemUnmap   587 cuEventRecordWithFlags
    588 cuEventRecordWithFlags_ptsz   652 cuLaunchKernelEx   653 cuLaunchKernelEx_ptsz
    678 cuLibraryLoadData   679 cuLibraryLoadFromFile   776 cuMemcpyBatchAsync   777 cuMemcpyBatchAsync_ptsz
    796 cuMemcpyBatchAsync_v2   797 cuMemcpyBatchAsync_v2_ptsz   800 cuCtxSynchronize_v2
    837 cuMemcpyWithAttributesAsync   838 cuMemcpyWithAttributesAsync_ptsz
    """
)
