// The shim's CPU back end: block follows block, and fibers_cpu.h runs the threads of each. The sanitizer's tests put threads
// of the operating system in their place.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL(name) static void name
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define SHARED(type, name) type& name = *(type*)flatout_shared

struct FlatoutIndex {
    int x, y, z;
};
typedef void (*FlatoutCall)(void** arguments);
struct FlatoutLaunch {
    int kernel, grid_x, grid_y, grid_z, threads, cluster, shared_bytes, first_argument;
};
struct FlatoutKernel {
    const char* name;
    FlatoutCall call;
    void (*launch)(const FlatoutLaunch& launch);
};
static FlatoutIndex blockIdx, blockDim, gridDim;
alignas(64) static char flatout_shared[48 * 1024];
static FlatoutCall flatout_call;
static void** flatout_arguments;

static void flatout_require(bool is_so, const char* otherwise) {
    if (is_so) return;
    fprintf(stderr, "%s\n", otherwise);
    abort();
}

// Run `count` threads to their end. `in_step`: each time they wait, all of them do.
static void flatout_execute(int count, bool in_step);

static void flatout_launch(const FlatoutLaunch& launch) {
    gridDim = {launch.grid_x, launch.grid_y, launch.grid_z};
    blockDim = {launch.threads, 1, 1};
    const int blocks = gridDim.x * gridDim.y * gridDim.z;
    for (int n = 0; n < blocks; n++) {
        blockIdx = {n % gridDim.x, n / gridDim.x % gridDim.y, n / (gridDim.x * gridDim.y)};
        flatout_execute(launch.threads, true);
    }
}

extern const FlatoutKernel flatout_kernels[];

// Run launches one after the other, all of them `repeat` times; `arguments` points to every launch's arguments in turn.
extern "C" void flatout_run(const FlatoutLaunch* launches, int count, void** arguments, int repeat) {
    for (int again = 0; again < repeat; again++)
        for (int n = 0; n < count; n++) {
            flatout_call = flatout_kernels[launches[n].kernel].call;
            flatout_arguments = arguments + launches[n].first_argument;
            flatout_kernels[launches[n].kernel].launch(launches[n]);
        }
}
