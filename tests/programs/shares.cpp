// What a handle of device memory is worth in another process, whoever made it: the exporter exports
// one block, the importer (this program once more, under memlab if the exporter is) opens it.
//
//   shares range     an address inside: where the block begins, how long it is, what it is
//   shares twice     opened twice, closed twice, and once too often
//   shares large     memory of many pieces, every byte
//   shares own       the exporter opens its own handle
//   shares freed     freed, and the memory allocated again, before the importer opens it
//   shares dead      the exporter has ended
//   shares stopped   the exporter is stopped: an answer within four seconds
//   shares changed   one byte of the handle is another
//
// Prints each answer. With plain CUDA "freed", "dead" and "stopped" may open, since the driver
// needs no process to answer; what must never be is other memory than the exporter's.
//
// Recorded by the importer: ipc_import: range, twice, large: 1 (freed).
#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/programs/program.hpp"
#include "tests/programs/resolved_ipc.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

struct Message {
    CUipcMemHandle handle;
    std::uint64_t bytes;
    pid_t exporter;
};

void put(int file, const Message& message) {
    if (::write(file, &message, sizeof message) != sizeof message) {
        ::_exit(4);
    }
}

double seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

CUresult open_handle(CUdeviceptr* address, const CUipcMemHandle& handle) {
    return cuIpcOpenMemHandle(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

bool is_stopped(pid_t process) {
    char path[64];
    char text[512] = "";
    (void)std::snprintf(path, sizeof path, "/proc/%d/stat", process);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = ::read(file, text, sizeof text - 1);
    ::close(file);
    const char* state = length > 0 ? std::strrchr(text, ')') : nullptr;
    return state != nullptr && state[2] == 'T';
}

void tell_range(CUdeviceptr address, std::size_t bytes) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&base, &size, address + bytes / 2));
    SAY("range: %s, %zu of %zu bytes\n", base == address ? "its start" : "elsewhere", size, bytes);
    CUdeviceptr start = 0;
    std::size_t length = 0;
    CUmemorytype type{};
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void* values[] = {&start, &length, &type};
    CHECK(cuPointerGetAttributes(3, attributes, values, address + bytes - 1));
    SAY("attributes: %s, %zu bytes, type %d\n", start == address ? "its start" : "elsewhere",
        length, static_cast<int>(type));
}

int import_memory(const std::string& way) {
    Message message{};
    if (::read(STDIN_FILENO, &message, sizeof message) != sizeof message) {
        return 4;
    }
    use_device();
    if (way == "changed") {
        message.handle.reserved[20] = static_cast<char>(message.handle.reserved[20] ^ 0x7f);
    }
    while (way == "dead" && ::getppid() == message.exporter) {
        ::usleep(1000);
    }
    while (way == "stopped" && !is_stopped(message.exporter)) {
        ::usleep(1000);
    }
    CUdeviceptr address = 0;
    const double begin = seconds();
    const CUresult opened = open_handle(&address, message.handle);
    if (opened != CUDA_SUCCESS) {
        SAY("refused%s: %d\n", seconds() - begin > 4 ? " after too long" : "",
            static_cast<int>(opened));
        if (way == "stopped") {
            ::kill(message.exporter, SIGCONT);
        }
        return 0;
    }
    SAY("opened, %s\n", all_bytes_are(address, message.bytes, 0x5a) ? "right" : "WRONG MEMORY");
    if (way == "range") {
        tell_range(address, message.bytes);
    }
    if (way == "twice") {
        CUdeviceptr again = 0;
        const CUresult opened_again = open_handle(&again, message.handle);
        SAY("again: %d, %s\n", static_cast<int>(opened_again),
            again == address ? "the same address" : "another address");
        SAY("closed: %d\n", static_cast<int>(cuIpcCloseMemHandle(address)));
        SAY("still %s\n", all_bytes_are(address, message.bytes, 0x5a) ? "right" : "WRONG MEMORY");
    }
    SAY("closed: %d\n", static_cast<int>(cuIpcCloseMemHandle(address)));
    if (way == "twice") {
        SAY("closed once more: %d\n", static_cast<int>(cuIpcCloseMemHandle(address)));
    }
    if (way == "stopped") {
        ::kill(message.exporter, SIGCONT);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string way = argc > 1 ? argv[1] : "";
    if (argc == 3) {
        return import_memory(way);
    }
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) {
        return 4;
    }
    const pid_t importer = ::fork();  // before CUDA is used, so that nothing of it is inherited
    if (importer == 0) {
        ::dup2(pipe[0], STDIN_FILENO);
        ::execl("/proc/self/exe", "shares", way.c_str(), "import", nullptr);
        ::_exit(4);
    }
    use_device();
    const CUdeviceptr neighbour = allocate(3 * mib + 512);
    if (way == "large") {
        release(allocate(16 * mib));  // a pool extends it for the block: memory of two growths
    }
    const std::size_t bytes = way == "large" ? 40 * mib + 512 : 5 * mib + 512;
    CUdeviceptr block = allocate(bytes);
    CHECK(cuMemsetD8(neighbour, 0x11, 3 * mib + 512));
    CHECK(cuMemsetD8(block, 0x5a, bytes));
    CHECK(cuCtxSynchronize());
    Message message{{}, bytes, ::getpid()};
    CHECK(cuIpcGetMemHandle(&message.handle, block));
    if (way == "own") {
        CUdeviceptr address = 0;
        SAY("own: %d\n", static_cast<int>(open_handle(&address, message.handle)));
    }
    if (way == "freed") {
        release(block);
        block = allocate(bytes);
        CHECK(cuMemsetD8(block, 0x22, bytes));
        CHECK(cuCtxSynchronize());
    }
    put(pipe[1], message);
    ::close(pipe[1]);
    if (way == "dead") {
        return 0;
    }
    if (way == "stopped") {
        ::raise(SIGSTOP);
    }
    int status = 0;
    ::waitpid(importer, &status, 0);
    release(neighbour);
    release(block);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}
