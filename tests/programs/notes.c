/* A program that says what it is doing, with memlab.h; built as C99 and as C++17. An argument is
 * where it puts a snapshot after its tenth step.
 *
 * Recorded, by thread 1: "setup" with 1,000,000 bytes, which get the name "weights" and escape;
 * twenty times "step" with "forward" (3 MiB, of which "backward" frees all) and 4096 bytes that no
 * one frees; a mark "end of step #" after each. A second thread leaves a scope open in which it
 * allocated 2,000,000 bytes. One end has no begin. */
#include <cuda.h>
#include <memlab/memlab.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static void* leave_a_scope_open(void* context) {
    check(cuCtxSetCurrent((CUcontext)context), "cuCtxSetCurrent");
    memlab_scope_begin("worker");
    (void)allocate(2000000);
    return NULL;
}

/* Figures of this program itself, where there are any. */
static void check_stats(void) {
    struct memlab_device_stats stats;
    const int answer = memlab_stats(-1, &stats);
    if (answer == 0 ? stats.size != sizeof(stats) || stats.requested_bytes != 1000000 ||
                          stats.requested_peak_bytes != 1000000 || stats.live_count != 1 ||
                          stats.allocated_bytes < stats.requested_bytes ||
                          stats.reserved_bytes < stats.allocated_bytes || stats.oom_count != 0
                    : stats.size != 0 || stats.requested_bytes != 0) {
        printf("wrong figures\n");
    }
    if (memlab_stats(77, &stats) != -1 || stats.size != 0) {
        printf("figures of a device that does not exist\n");
    }
}

/* Of pinned memory alone, of which there is none; and what was made since the program began. */
static void check_filtered(uint64_t interval) {
    static char json[1 << 16];
    const uint64_t moments[2] = {0, memlab_moment()};
    const size_t length = memlab_interval_end(interval, 9, json, sizeof(json));
    if ((interval == 0 && length != 0) ||
        (length != 0 && strstr(json, "\"allocated_count\":0,") == NULL)) {
        printf("wrong interval of pinned memory: %s\n", json);
    }
    if (memlab_interval_begin_of(0, "nonsense") != 0) {
        printf("an interval of no kind of memory\n");
    }
    if ((memlab_made_between(moments, 2, 9, json, sizeof(json)) != 0) != (length != 0) ||
        (length != 0 && (moments[1] != 1 || strstr(json, "\"count\":1,") == NULL)) ||
        (length != 0 && (memlab_made_between(moments + 1, 1, 9, json, sizeof(json)) == 0 ||
                         strstr(json, "\"peak_bytes\":0,") == NULL))) {
        printf("wrong memory between moments: %s\n", json);
    }
}

/* Of what came since before CUDA, where there are any; a buffer that is too small loses nothing. */
static void check_interval(uint64_t interval) {
    static char json[1 << 16];
    const size_t length = memlab_interval_end(interval, 9, json, 8);
    if (memlab_interval_end(interval, 9, json, sizeof(json)) != length ||
        (interval == 0 && length != 0) ||
        (length != 0 && (strlen(json) != length || strstr(json, "\"begin_bytes\":0,") == NULL ||
                         strstr(json, "\"allocated_count\":1,") == NULL))) {
        printf("wrong interval: %s\n", json);
    }
    if (memlab_interval_end(interval, 9, json, sizeof(json)) != 0) {
        printf("an interval that was told twice\n");
    }
    if ((memlab_recording(json, sizeof(json)) != 0) != (length != 0)) {
        printf("wrong path: %s\n", json);
    }
}

int main(int argc, char** argv) {
    const uint64_t interval = memlab_interval_begin();
    const uint64_t pinned = memlab_interval_begin_of(0, "pinned");
    CUdevice device;
    CUcontext context;
    CUdeviceptr weights;
    pthread_t thread;
    int step;

    memlab_mark("before CUDA");
    memlab_scope_begin("setup");
    memlab_scope_begin("over before CUDA");
    memlab_scope_end();
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    weights = allocate(1000000);
    (void)memlab_label_detail((const void*)(size_t)(weights + 1000), "weights",
                              "float32[500, 500]");
    if (memlab_label(&step, "not on the device") != -1) {
        printf("a variable is not an allocation\n");
    }
    check_stats();
    check_interval(interval);
    check_filtered(pinned);
    memlab_scope_end();

    for (step = 0; step < 20; ++step) {
        char name[32];
        CUdeviceptr activations;
        memlab_scope_begin("step");
        memlab_scope_begin("forward");
        activations = allocate(3U << 20);
        memlab_scope_end();
        memlab_scope_begin("backward");
        check(cuMemFree(activations), "cuMemFree");
        memlab_scope_end();
        (void)allocate(4096);
        memlab_scope_end();
        (void)snprintf(name, sizeof(name), "end of step %d", step);
        memlab_mark(name);
        if (step == 9 && argc > 1) {
            (void)memlab_snapshot(argv[1]);
        }
    }
    memlab_scope_end();
#ifdef __cplusplus
    {
        const memlab::Scope scope("in a block");
        check(cuMemFree(allocate(100)), "cuMemFree");
    }
#endif
    if (pthread_create(&thread, NULL, leave_a_scope_open, context) != 0 ||
        pthread_join(thread, NULL) != 0) {
        return 1;
    }
    memlab_mark(NULL);
    memlab_scope_begin("open at the end");
    printf("20 steps\n");
    return 0;
}
