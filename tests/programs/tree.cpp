// A process and its descendants, each with CUDA of its own, started without it: a word for each
// process, in brackets its children.
//   tree 'a(b c(d))'
// Each process runs the letter's part and then its children, one after another:
//   a        allocates 1 MiB for its place in the alphabet (a: 1, b: 2, ...) and frees it
//   b!       the same, and keeps it
//   c/       the same, and ends by _exit
//   d#       the same, and is killed by SIGKILL
//   e=3      the same, and ends with code 3
//   f~       allocates and keeps it, says "ready" and waits for a signal to end it
//   -        no CUDA at all
//   +x       x runs while the siblings after it do; it is waited for at the end
// A child is the program again, by exec, with its own part as its argument.
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

struct Part {
    std::string own;
    std::vector<std::string> children;
};

/// "a(b c(d))" as "a" and {"b", "c(d)"}.
Part take_apart(const std::string& text) {
    Part part;
    const std::size_t open = text.find('(');
    part.own = text.substr(0, open);
    int depth = 0;
    std::string child;
    for (std::size_t i = open; i != std::string::npos && i < text.size(); ++i) {
        const char c = text[i];
        depth += c == '(' ? 1 : 0;
        depth -= c == ')' ? 1 : 0;
        const bool between = (depth == 1 && (c == ' ' || c == '(')) || depth == 0;
        if (!between) {
            child += c;
        } else if (!child.empty()) {
            part.children.push_back(child);
            child.clear();
        }
    }
    return part;
}

pid_t start(char* self, const std::string& part) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl("/proc/self/exe", self, part.c_str(), static_cast<char*>(nullptr));
        ::_exit(127);
    }
    return child;
}

}  // namespace

int main(int argc, char** argv) {
    const Part part = take_apart(argc == 2 ? argv[1] : "-");
    const std::string& own = part.own;
    const auto says = [&own](char sign) { return own.find(sign) != std::string::npos; };
    const bool uses_cuda = own != "-";
    std::vector<pid_t> beside;
    if (uses_cuda) {
        use_device();
        const CUdeviceptr block = allocate(static_cast<std::size_t>(own[0] - 'a' + 1) << 20);
        if (!says('!') && !says('~')) {
            release(block);
        }
    }
    for (const std::string& child : part.children) {
        const bool waits = child[0] != '+';
        const pid_t pid = start(argv[0], waits ? child : child.substr(1));
        if (waits) {
            ::waitpid(pid, nullptr, 0);
        } else {
            beside.push_back(pid);
        }
    }
    for (const pid_t pid : beside) {
        ::waitpid(pid, nullptr, 0);
    }
    if (says('~')) {
        SAY("ready\n");
        ::pause();
    }
    if (says('/')) {
        ::_exit(0);
    }
    if (says('#')) {
        ::raise(SIGKILL);
    }
    return says('=') ? own.back() - '0' : 0;
}
