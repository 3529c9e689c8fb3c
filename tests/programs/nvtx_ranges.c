/* A program with NVTX ranges of every kind. It prints what NVTX answered where a program could
 * depend on it: the same with a tool and without.
 *
 * Recorded where memlab is the tool: the scopes "forward" (1 MiB escapes), "LIB:call" in it from a
 * domain (512 KiB escape both), "wide \u00e4\u20ac", a registered "registered", attributes without
 * a message "", ranges "first" and "second" that overlap (each with one of two allocations of 256
 * KiB and both with a third), marks, names for a heap and a region, and in a domain "ended with a
 * payload" (4 KiB escape), a scope, a range and a mark without a name. */
#define _GNU_SOURCE /* syscall(), pthread_setname_np() */
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "program.h"

static nvtxEventAttributes_t attributes(void) {
    nvtxEventAttributes_t result;
    memset(&result, 0, sizeof(result));
    result.version = NVTX_VERSION;
    result.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    result.colorType = NVTX_COLOR_ARGB;
    result.color = 0xff00ff00U;
    return result;
}

/* The kernel knows this thread as "range's end". */
static void* end_range(void* id) {
    (void)pthread_setname_np(pthread_self(), "range's end");
    nvtxRangeEnd(*(const nvtxRangeId_t*)id);
    return NULL;
}

/* What NVTX calls a thread stays, whatever the kernel calls it. */
static void* end_named_range(void* id) {
    nvtxNameOsThreadW((uint32_t)syscall(SYS_gettid), L"named \u20ac");
    return end_range(id);
}

static int run_thread(void* (*function)(void*), nvtxRangeId_t* id) {
    pthread_t thread;
    return pthread_create(&thread, NULL, function, id) == 0 && pthread_join(thread, NULL) == 0;
}

static void hostile_names(void) {
    enum { size = 100 << 10 };
    char* text = (char*)malloc(size);
    int i;
    if (text == NULL) {
        exit(1);
    }
    memset(text, 'x', size - 1);
    text[size - 1] = 0;
    nvtxRangePushA(text);
    nvtxRangePop();
    nvtxMarkA(text);
    nvtxRangePushA("");
    nvtxRangePop();
    nvtxRangePushA(NULL);
    nvtxRangePop();
    nvtxRangePushW(NULL);
    nvtxRangePop();
    nvtxRangePushEx(NULL);
    nvtxRangePop();
    nvtxMarkA("\xff\xfe invalid \xc3");
    for (i = 0; i < 600; i += 2) { /* 255 bytes end within a character */
        memcpy(text + i, "\xc3\xa4", 3);
    }
    nvtxRangePushA(text);
    nvtxRangePop();
    for (i = 0; i < 20000; ++i) {
        (void)snprintf(text, size, "iteration %d of many", i);
        nvtxRangePushA(text);
        nvtxRangePop();
    }
    nvtxRangePop();
    nvtxRangeEnd(0);
    nvtxRangeEnd(123456789);
    nvtxDomainRangePop((nvtxDomainHandle_t)0);
    free(text);
}

static void names_of_memory(CUdeviceptr heap, CUdeviceptr block) {
    nvtxMemVirtualRangeDesc_t range;
    nvtxMemHeapDesc_t desc;
    nvtxMemRegionNameDesc_t names[2];
    nvtxMemRegionsNameBatch_t batch;
    memset(&desc, 0, sizeof(desc));
    memset(&names, 0, sizeof(names));
    memset(&batch, 0, sizeof(batch));
    range.ptr = (const void*)(size_t)heap;
    range.size = 1 << 20;
    desc.extCompatID = NVTX_EXT_COMPATID_MEM;
    desc.structSize = sizeof(desc);
    desc.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    desc.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    desc.typeSpecificDescSize = sizeof(range);
    desc.typeSpecificDesc = &range;
    desc.messageType = NVTX_MESSAGE_TYPE_ASCII;
    desc.message.ascii = "a heap";
    (void)nvtxMemHeapRegister(NULL, &desc);
    names[0].regionRefType = names[1].regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    names[0].nameType = names[1].nameType = NVTX_MESSAGE_TYPE_ASCII;
    names[0].region.pointer = (const void*)(size_t)block;
    names[0].name.ascii = "a region";
    names[1].region.pointer = (const void*)(size_t)(heap + 4096);
    names[1].name.ascii = "a part of the heap";
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof(batch);
    batch.regionCount = 2;
    batch.regionElementSize = sizeof(names[0]);
    batch.regionElements = names;
    nvtxMemRegionsName(NULL, &batch);
    nvtxMemHeapReset(NULL, NULL);
}

/* As NCCL does it. */
static void payloads(void) {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("PAYLOAD");
    nvtxEventAttributes_t event = attributes();
    nvtxPayloadData_t payload;
    const int number = 7;
    nvtxRangeId_t range;
    payload.schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT;
    payload.size = sizeof(number);
    payload.payload = &number;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "ended with a payload";
    nvtxDomainRangePushEx(domain, &event);
    (void)allocate(4 << 10);
    printf("pop %d\n", nvtxRangePopPayload(domain, &payload, 1));
    printf("push %d\n", nvtxRangePushPayload(domain, &payload, 1));
    range = nvtxRangeStartPayload(domain, &payload, 1);
    nvtxRangeEndPayload(domain, range, &payload, 1);
    (void)nvtxRangePopPayload(domain, &payload, 1);
    nvtxMarkPayload(domain, &payload, 1);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr forward;
    CUdeviceptr call;
    nvtxDomainHandle_t library;
    nvtxEventAttributes_t event = attributes();
    nvtxRangeId_t first;
    nvtxRangeId_t second;

    nvtxNameOsThreadA((uint32_t)getpid(), "not yet");
    nvtxNameOsThreadA((uint32_t)getpid(), "from the start");
    library = nvtxDomainCreateA("LIB");
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");

    printf("push %d\n", nvtxRangePushA("forward"));
    forward = allocate(1 << 20);
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "call";
    nvtxDomainRangePushEx(library, &event);
    call = allocate(512 << 10);
    printf("pop %d\n", nvtxDomainRangePop(library));
    nvtxRangePop();

    nvtxRangePushW(L"wide \u00e4\u20ac");
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(library, "registered");
    nvtxDomainRangePushEx(library, &event);
    event = attributes();
    nvtxRangePushEx(&event);
    (void)allocate(1000);
    nvtxRangePop();
    nvtxDomainRangePop(library);
    nvtxRangePop();

    first = nvtxRangeStartA("first");
    (void)allocate(256 << 10);
    second = nvtxRangeStartW(L"second");
    (void)allocate(256 << 10);
    if (!run_thread(end_range, &first)) {
        return 1;
    }
    (void)allocate(256 << 10);
    if (!run_thread(end_named_range, &second)) {
        return 1;
    }

    nvtxMarkA("a mark");
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "a mark of the library";
    nvtxDomainMarkEx(library, &event);
    nvtxNameOsThreadA(1, "nobody");
    payloads();
    names_of_memory(forward, call);
    hostile_names();
    nvtxDomainDestroy(library);
    printf("done\n");
    return 0;
}
