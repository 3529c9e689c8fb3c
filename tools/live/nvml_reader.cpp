#include "tools/live/nvml_reader.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <utility>

#include "tools/preload.hpp"

namespace memlab::tools {
namespace {

constexpr char glibc_loader[] = "/lib64/ld-linux-x86-64.so.2";
constexpr std::chrono::minutes pause_after_failure{1};
constexpr std::size_t most_bytes = std::size_t{4} << 20;
constexpr std::string_view last_line = "end\n";

std::string_view next_word(std::string_view* text) {
    const std::size_t end = std::min(text->find(' '), text->size());
    const std::string_view word = text->substr(0, end);
    text->remove_prefix(std::min(end + 1, text->size()));
    return word;
}

template <class Number>
bool read_number(std::string_view* text, Number* number) {
    const std::string_view word = next_word(text);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
    return error == std::errc() && end == word.data() + word.size();
}

void add_gpu_line(std::string_view rest, GpuListing* listing) {
    Gpu gpu;
    if (!read_number(&rest, &gpu.index) || !read_number(&rest, &gpu.minor) ||
        !read_number(&rest, &gpu.total) || !read_number(&rest, &gpu.used) ||
        !read_number(&rest, &gpu.free)) {
        return;
    }
    gpu.uuid = next_word(&rest);
    gpu.pci = next_word(&rest);
    if (gpu.pci == "-") {
        gpu.pci.clear();
    }
    gpu.name = rest;
    listing->gpus.push_back(std::move(gpu));
}

Gpu* gpu_of(unsigned index, GpuListing* listing) {
    const auto found = std::find_if(listing->gpus.begin(), listing->gpus.end(),
                                    [index](const Gpu& gpu) { return gpu.index == index; });
    return found == listing->gpus.end() ? nullptr : &*found;
}

void add_process_line(std::string_view rest, GpuListing* listing) {
    unsigned index = 0;
    GpuProcess process;
    if (!read_number(&rest, &index) || !read_number(&rest, &process.pid)) {
        return;
    }
    const std::string_view bytes = next_word(&rest);
    std::uint64_t number = 0;
    if (std::from_chars(bytes.data(), bytes.data() + bytes.size(), number).ec == std::errc()) {
        process.bytes = number;
    }
    process.compute = rest == "compute";
    process.graphics = rest == "graphics";
    Gpu* const gpu = gpu_of(index, listing);
    if (gpu == nullptr) {
        return;
    }
    // In both lists, with the same memory.
    for (GpuProcess& known : gpu->processes) {
        if (known.pid == process.pid) {
            known.bytes = std::max(known.bytes, process.bytes);
            known.compute |= process.compute;
            known.graphics |= process.graphics;
            return;
        }
    }
    gpu->processes.push_back(process);
}

}  // namespace

GpuListing parse_gpu_listing(std::string_view text) {
    GpuListing listing;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::string_view name = next_word(&line);
        if (name == "no_nvml") {
            listing.problem = line;
        } else if (name == "driver") {
            listing.driver = line;
        } else if (name == "gpu") {
            add_gpu_line(line, &listing);
        } else if (name == "process") {
            add_process_line(line, &listing);
        } else if (name == "no_processes") {
            unsigned index = 0;
            Gpu* const gpu = read_number(&line, &index) ? gpu_of(index, &listing) : nullptr;
            if (gpu != nullptr && next_word(&line) == "compute") {
                gpu->processes_known = false;
            }
        }
    }
    return listing;
}

bool NvmlReader::start_child() {
    if (library_.empty()) {
        const FoundLibrary found = find_library("", ".");
        if (!found.problem.empty()) {
            problem_ = "libmemlab.so, which asks NVML, is not in ../lib beside this program";
            return false;
        }
        library_ = found.path;
    }
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        problem_ = "no socket for the process that asks NVML";
        return false;
    }
    // Nothing but NVML: another tool's library would start to profile.
    std::vector<char*> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("CUDA_INJECTION64_PATH=") &&
            !text.starts_with("NVTX_INJECTION64_PATH=")) {
            environment.push_back(*entry);
        }
    }
    environment.push_back(nullptr);
    std::string loader = glibc_loader;
    std::string argument = "nvml";
    std::array<char*, 4> words{loader.data(), library_.data(), argument.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Ctrl-C at the terminal is for the tool.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    const int error = posix_spawn(&child_, loader.c_str(), &actions, &attributes, words.data(),
                                  environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        child_ = 0;
        problem_ = "NVML needs glibc, whose loader is not in /lib64";
        return false;
    }
    socket_ = ends[0];
    return true;
}

void NvmlReader::end_child() {
    if (socket_ >= 0) {
        close(socket_);
        socket_ = -1;
    }
    if (child_ > 0) {
        kill(child_, SIGKILL);
        // One that waits in the driver does not end at once: it is the system's then.
        for (int i = 0; i < 20 && waitpid(child_, nullptr, WNOHANG) == 0; ++i) {
            usleep(5000);
        }
        child_ = 0;
    }
}

GpuListing NvmlReader::failed(const std::string& why) {
    end_child();
    problem_ = why;
    not_before_ = Clock::now() + pause_after_failure;
    GpuListing listing;
    listing.problem = problem_;
    return listing;
}

GpuListing NvmlReader::read(std::chrono::milliseconds patience) {
    if (child_ == 0 && (Clock::now() < not_before_ || !start_child())) {
        GpuListing listing;
        listing.problem = problem_;
        return listing;
    }
    if (send(socket_, "\n", 1, MSG_NOSIGNAL) != 1) {
        return failed("the process that asks NVML has ended");
    }
    const Clock::time_point end = Clock::now() + patience;
    std::string text;
    while (!(text == last_line || text.ends_with("\nend\n"))) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
        pollfd ready{socket_, POLLIN, 0};
        const int count = left.count() <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left.count()));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0 || text.size() > most_bytes) {
            return failed("NVML does not answer within " + std::to_string(patience.count() / 1000) +
                          " s");
        }
        std::array<char, 8192> bytes{};
        const ssize_t length = recv(socket_, bytes.data(), bytes.size(), 0);
        if (length <= 0) {
            return failed("the process that asks NVML has ended");
        }
        text.append(bytes.data(), static_cast<std::size_t>(length));
    }
    GpuListing listing = parse_gpu_listing(text);
    return listing;
}

}  // namespace memlab::tools
