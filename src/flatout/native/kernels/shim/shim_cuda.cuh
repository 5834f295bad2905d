// The shim's CUDA back end: all that the kernels need beyond CUDA itself. shim_cpu.h is the other one.
#define KERNEL(name) extern "C" __global__ void name
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED(type, name) __shared__ type name
