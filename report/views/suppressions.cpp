#include "report/views/suppressions.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "report/summary/framework_findings.hpp"
#include "report/text/patterns.hpp"

namespace memlab::report {

namespace {

constexpr std::string_view built_in = R"(
# Seen in recordings of PyTorch, CuPy and JAX on an H100: 32 MiB and less for each handle.
[cuBLAS handles]
reason = cuBLAS keeps a workspace with each handle until cublasDestroy; libraries keep their handles
module = libcublas*.so*

# Seen in recordings of JAX on an H100.
[cuDNN handles]
reason = cuDNN keeps memory with each handle until cudnnDestroy; libraries keep their handles
module = libcudnn*.so*

# Documented with NCCL_BUFFSIZE: buffers of each channel between two GPUs of a communicator.
[NCCL buffers]
reason = NCCL keeps its buffers with each communicator until ncclCommDestroy
module = libnccl.so*

# Documented in PyTorch's notes on CUDA semantics, "cuBLAS workspaces". A recording of PyTorch 2.11
# has at::cuda::setWorkspaceForHandle and at::cuda::getCUDABlasLtWorkspace.
[PyTorch's cuBLAS workspaces]
reason = PyTorch keeps one for each handle and stream (CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE)
func = at::cuda::*Workspace*

# The function that allocates them in earlier versions.
[PyTorch's cuBLAS handles]
reason = PyTorch keeps a workspace for each handle and stream (CUBLAS_WORKSPACE_CONFIG)
func = at::cuda::getCurrentCUDABlasHandle
)";

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const std::size_t first = text.find_first_not_of(blank);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

class Parser {
  public:
    SuppressionList parse(std::string_view text) {
        std::size_t number = 0;
        while (!text.empty() && result_.problem.empty()) {
            const std::size_t end = text.find('\n');
            ++number;
            line(number, trimmed(text.substr(0, end)));
            text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
        }
        if (result_.problem.empty()) {
            finish_block();
        }
        if (!result_.problem.empty()) {
            result_.list.clear();
        }
        return std::move(result_);
    }

  private:
    void line(std::size_t number, std::string_view text) {
        if (text.empty() || text.front() == '#') {
            return;
        }
        if (text.front() == '[') {
            finish_block();
            begin_block(number, text);
            return;
        }
        const std::size_t equals = text.find('=');
        if (equals == std::string_view::npos) {
            problem(number, "is neither [NAME] nor KEY = TEXT");
            return;
        }
        if (!open_) {
            problem(number, "is before the first [NAME]; give the suppression a name");
            return;
        }
        member(number, std::string(trimmed(text.substr(0, equals))),
               std::string(trimmed(text.substr(equals + 1))));
    }

    void begin_block(std::size_t number, std::string_view text) {
        if (!result_.problem.empty()) {
            return;
        }
        if (text.back() != ']') {
            problem(number, "a name ends with ]");
            return;
        }
        const std::string_view name = trimmed(text.substr(1, text.size() - 2));
        if (name.empty()) {
            problem(number, "a suppression needs a name between [ and ]");
            return;
        }
        if (!names_.insert(std::string(name)).second) {
            problem(number, "[" + std::string(name) + "] is defined twice; give each its own name");
            return;
        }
        result_.list.emplace_back();
        result_.list.back().name = name;
        open_ = true;
        block_line_ = number;
        keys_.clear();
    }

    void member(std::size_t number, const std::string& key, const std::string& value) {
        static constexpr std::array<std::string_view, 6> known = {"reason", "func", "file",
                                                                  "module", "kind", "api"};
        if (std::find(known.begin(), known.end(), key) == known.end()) {
            problem(number, "takes reason, func, file, module, kind or api, not " + key);
            return;
        }
        if (!keys_.insert(key).second) {
            problem(number, "has " + key + " twice; all patterns of a block must match");
            return;
        }
        if (value.empty()) {
            problem(number, key + " is empty; remove it, or give it a value");
            return;
        }
        Suppression& block = result_.list.back();
        if (key == "reason") {
            block.reason = value;
        } else if (key == "api") {
            block.api = value;
        } else if (const std::string wrong = block.filter.add(key + "=" + value); !wrong.empty()) {
            problem(number, wrong);
        }
    }

    void finish_block() {
        if (!open_ || !result_.problem.empty()) {
            return;
        }
        const Suppression& block = result_.list.back();
        if (block.filter.empty() && block.api.empty()) {
            problem(block_line_,
                    "[" + block.name + "] matches everything; say func, file, module, kind or api");
        } else if (block.reason.empty()) {
            problem(block_line_, "[" + block.name + "] has no reason; say why it may stay");
        }
    }

    void problem(std::size_t number, const std::string& what) {
        if (result_.problem.empty()) {
            result_.problem = "line " + std::to_string(number) + ": " + what;
        }
    }

    SuppressionList result_;
    bool open_ = false;
    std::size_t block_line_ = 0;
    std::set<std::string> keys_;
    std::set<std::string> names_;
};

}  // namespace

bool Suppression::matches(const model::Site& site, const std::vector<StackFrame>& frames) const {
    return (api.empty() || matches_text(api, site.api)) && filter.matches(site.kind, frames);
}

const Suppression* find_suppression(const std::vector<Suppression>& list,
                                    const model::Report& report, const model::Site& site,
                                    const std::vector<StackFrame>& frames, LeakKind leak) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const Suppression& each) {
        return (leak == LeakKind::at_end || !each.built_in) &&
               (each.segments       ? is_segment_seen_inside(report, site)
                : each.pytorchs_own ? is_pytorchs_own(report, site)
                                    : each.matches(site, frames));
    });
    return found == list.end() ? nullptr : &*found;
}

SuppressionList parse_suppressions(std::string_view text) {
    return Parser().parse(text);
}

SuppressionList read_suppressions(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    // Opening a folder succeeds; reading it fails.
    if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) ||
        file.bad()) {
        const int error = errno != 0 ? errno : EISDIR;
        return {{}, std::string("cannot be read (") + std::strerror(error) + "); check the name"};
    }
    return parse_suppressions(text.str());
}

SuppressionList read_suppressions(const std::vector<std::string>& paths, bool defaults) {
    SuppressionList all;
    for (const std::string& path : paths) {
        SuppressionList read = read_suppressions(path);
        if (!read.problem.empty()) {
            return {{}, path + ": " + read.problem};
        }
        std::move(read.list.begin(), read.list.end(), std::back_inserter(all.list));
    }
    if (defaults) {
        const std::vector<Suppression>& built_in_list = default_suppressions();
        all.list.insert(all.list.end(), built_in_list.begin(), built_in_list.end());
    }
    return all;
}

const std::vector<Suppression>& default_suppressions() {
    static const std::vector<Suppression> list = [] {
        SuppressionList read = parse_suppressions(built_in);
        for (Suppression& each : read.list) {
            each.built_in = true;
        }
        read.list.insert(
            read.list.begin(),
            {.name = "cache segments",
             .reason = "a framework keeps them until the process ends; what it allocated in them "
                       "is listed instead",
             .filter = {},
             .api = {},
             .built_in = true,
             .segments = true});
        // Where PyTorch's functions have names, those above tell them.
        read.list.push_back(
            {.name = "PyTorch's own workspaces",
             .reason =
                 "PyTorch's CUDA code took it for itself, not for a tensor: it keeps a cuBLAS "
                 "workspace for each handle and stream, and pinned memory",
             .filter = {},
             .api = {},
             .built_in = true,
             .pytorchs_own = true});
        return std::move(read.list);
    }();
    return list;
}

}  // namespace memlab::report
