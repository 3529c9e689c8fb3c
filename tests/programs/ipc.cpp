// Shares device memory with other processes, as MPI and UCX do: the handle of the allocation and
// the offset in it, found with cuMemGetAddressRange, go to an importer, which opens the handle,
// adds the offset and looks whether it sees the exporter's bytes.
//
//   ipc export plain|preloaded [on:DEVICE] BYTES...
//
// Starts itself as an importer ("ipc import DEVICE") for each allocation, without memlab or as it
// was started itself, on the first device or the one that is named. Of each allocation an address
// in its middle is exported. Prints a line for each:
//
//   BYTES: exact             the importer saw the right bytes, and the exporter what it wrote
//   BYTES: refused CODE      cuIpcGetMemHandle or cuIpcOpenMemHandle failed
//   BYTES: WRONG MEMORY      what must never be
//
// Before its export each is asked whether it can be exported (IS_LEGACY_CUDA_IPC_CAPABLE), and must
// say what the export then does.
//
// Exit code 1 after wrong memory or such a wrong answer.
#include <cuda.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "program.hpp"
#include "tests/programs/resolved_ipc.hpp"

using namespace program;

namespace {

// What goes through the pipe to the importer, and what comes back.
struct Message {
    CUipcMemHandle handle;
    std::uint64_t offset;
    std::uint64_t bytes;  // from there to the end of the allocation
    unsigned char pattern;
};

struct Answer {
    int result;
    bool right;
};

void put(int file, const void* data, std::size_t bytes) {
    if (::write(file, data, bytes) != static_cast<ssize_t>(bytes)) {
        SAY("the pipe broke\n");
        ::_exit(4);
    }
}

bool get(int file, void* data, std::size_t bytes) {
    return ::read(file, data, bytes) == static_cast<ssize_t>(bytes);
}

// Sees `pattern` in all of the range? Then it is overwritten with pattern + 1, for the exporter.
bool look_and_answer(CUdeviceptr address, std::size_t bytes, unsigned char pattern) {
    if (!all_bytes_are(address, bytes, pattern)) {
        return false;
    }
    CHECK(cuMemsetD8(address, static_cast<unsigned char>(pattern + 1), bytes));
    CHECK(cuCtxSynchronize());
    return true;
}

int import_memory(int device) {
    Message message{};
    if (!get(STDIN_FILENO, &message, sizeof message)) {
        return 4;
    }
    use_device(device);
    CUdeviceptr base = 0;
    Answer answer{};
    answer.result = cuIpcOpenMemHandle(&base, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (answer.result == CUDA_SUCCESS) {
        answer.right = look_and_answer(base + message.offset, message.bytes, message.pattern);
        CHECK(cuIpcCloseMemHandle(base));
    }
    put(STDOUT_FILENO, &answer, sizeof answer);
    return 0;
}

// Started before CUDA is, so that nothing of it is inherited.
struct Importer {
    pid_t process;
    int to;
    int from;
};

Importer start_importer(bool preloaded, const char* device) {
    int there[2];
    int back[2];
    if (::pipe2(there, O_CLOEXEC) != 0 || ::pipe2(back, O_CLOEXEC) != 0) {
        ::_exit(4);
    }
    const pid_t process = ::fork();
    if (process == 0) {
        ::dup2(there[0], STDIN_FILENO);
        ::dup2(back[1], STDOUT_FILENO);
        if (!preloaded) {
            ::unsetenv("LD_PRELOAD");
        }
        ::execl("/proc/self/exe", "ipc", "import", device, nullptr);
        ::_exit(4);
    }
    ::close(there[0]);
    ::close(back[1]);
    return {process, there[1], back[0]};
}

struct Block {
    CUdeviceptr address;
    std::size_t bytes;
    unsigned char pattern;
};

// True unless the importer got wrong memory, or the block said otherwise than it did.
bool share(const Block& block, const Importer& importer) {
    const CUdeviceptr middle = block.address + block.bytes / 2;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    Message message{};
    CHECK(cuMemGetAddressRange(&base, &bytes, middle));
    unsigned capable = 99;
    CHECK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, middle));
    const CUresult exported = cuIpcGetMemHandle(&message.handle, middle);
    if (capable != (exported == CUDA_SUCCESS ? 1U : 0U)) {
        SAY("%zu: IS_LEGACY_CUDA_IPC_CAPABLE is %u, the export's answer %d\n", block.bytes, capable,
            static_cast<int>(exported));
        return false;
    }
    if (exported != CUDA_SUCCESS) {
        SAY("%zu: refused %d\n", block.bytes, static_cast<int>(exported));
        return true;
    }
    message.offset = middle - base;
    message.bytes = block.bytes - block.bytes / 2;
    message.pattern = block.pattern;
    Answer answer{};
    put(importer.to, &message, sizeof message);
    if (!get(importer.from, &answer, sizeof answer)) {
        SAY("%zu: the importer gave no answer\n", block.bytes);
        return false;
    }
    if (answer.result != CUDA_SUCCESS) {
        SAY("%zu: refused %d by the importer\n", block.bytes, answer.result);
        return true;
    }
    // The importer's half has its answer, the other is as it was.
    std::vector<unsigned char> seen(block.bytes);
    CHECK(cuMemcpyDtoH(seen.data(), block.address, block.bytes));
    bool right = answer.right;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const int wanted = i < block.bytes / 2 ? block.pattern : block.pattern + 1;
        right = right && seen[i] == static_cast<unsigned char>(wanted);
    }
    SAY("%zu: %s\n", block.bytes, right ? "exact" : "WRONG MEMORY");
    return right;
}

int export_memory(bool preloaded, const char* importers_device,
                  const std::vector<std::size_t>& sizes) {
    std::vector<Importer> importers;
    for (std::size_t i = 0; i < 2 * sizes.size(); ++i) {
        importers.push_back(start_importer(preloaded, importers_device));
    }
    use_device();
    std::vector<Block> blocks;
    unsigned char pattern = 1;
    bool right = true;
    const auto fill = [&] {
        for (const std::size_t bytes : sizes) {
            const Block block{allocate(bytes), bytes, pattern};
            pattern = static_cast<unsigned char>(pattern + 2);
            CHECK(cuMemsetD8(block.address, block.pattern, bytes));
            blocks.push_back(block);
        }
        CHECK(cuCtxSynchronize());
    };
    fill();
    SAY("allocated before anything was exported\n");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        right = share(blocks[i], importers[i]) && right;
    }
    fill();
    SAY("allocated afterwards\n");
    for (std::size_t i = sizes.size(); i < blocks.size(); ++i) {
        right = share(blocks[i], importers[i]) && right;
    }
    for (const Block& block : blocks) {
        release(block.address);
    }
    for (const Importer& importer : importers) {
        ::close(importer.to);  // one that was never asked ends
        int status = 0;
        ::waitpid(importer.process, &status, 0);
    }
    return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "import") == 0) {
        return import_memory(std::atoi(argv[2]));
    }
    if (argc < 4 || std::strcmp(argv[1], "export") != 0) {
        return 2;
    }
    const bool placed = std::strncmp(argv[3], "on:", 3) == 0;
    const char* device = placed ? argv[3] + 3 : "0";
    std::vector<std::size_t> sizes;
    for (int i = placed ? 4 : 3; i < argc; ++i) {
        sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    }
    return export_memory(std::strcmp(argv[2], "preloaded") == 0, device, sizes);
}
