// Opens recordings of any kind and state; reports and event logs are distinguished by content.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "model/json_writer.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/found_steps.hpp"
#include "report/reading/input_file.hpp"
#include "report/reading/log_report.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_format.hpp"

namespace memlab::report {

namespace {

/// All lists of a report but sites and stacks are bounded; a larger file cannot be one. As a model
/// it takes several times as much memory.
constexpr std::uint64_t max_report_size = 1ULL << 30;
constexpr char too_large_for_report[] =
    "larger than any report; give a memlab.*.json or .memlog file";

class File {
  public:
    /// Does not block on a pipe without a writer.
    explicit File(const std::string& path)
        : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (fd_ >= 0) {
            close(fd_);
        }
    }
    int fd() const { return fd_; }

  private:
    int fd_;
};

std::string explain(int error) {
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return "no such file; check the name (memlab-run prints it at the end of a run)";
        case EACCES:
            return "no permission to read it; ask its owner or run as that user";
        default:
            return std::string("cannot be read (") + std::strerror(error) +
                   "); copy it to another place and try again";
    }
}

/// Reads all of `fd` into `text`. Returns an explanation of the error, or empty.
std::string read_all(int fd, std::string* text) {
    std::array<char, 1 << 16> buffer;
    while (true) {
        const ssize_t got = read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return explain(errno);
        }
        if (got == 0) {
            return {};
        }
        text->append(buffer.data(), static_cast<std::size_t>(got));
        if (text->size() > max_report_size) {
            return too_large_for_report;
        }
        // Also what a sparse file has instead of text.
        if (std::memchr(buffer.data(), 0, static_cast<std::size_t>(got)) != nullptr) {
            return "damaged: it has zero bytes, which are no text; copy it again";
        }
    }
}

bool looks_like_json(std::string_view head) {
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && (head[first] == '{' || head[first] == '[');
}

DeriveResult failure(const std::string& error) {
    DeriveResult result;
    result.error = error;
    return result;
}

/// Why the open file, `status`, is no recording; empty: it may be one.
std::string problem_of(const File& file, const std::string& path, struct stat& status) {
    if (file.fd() < 0 || fstat(file.fd(), &status) != 0) {
        const int error = errno;
        const std::string log = name_of_log_beside(path);
        return error == ENOENT && !log.empty() && is_event_log(log)
                   ? "no such file, but its event log is there: give " + log
                   : explain(error);
    }
    if (S_ISDIR(status.st_mode)) {
        return "a folder; give one file of it, a memlab.*.json or .memlog";
    }
    if (!S_ISREG(status.st_mode)) {
        return "not a regular file; give a memlab.*.json or .memlog file";
    }
    return status.st_size == 0 ? "empty; the program was ended before anything was written" : "";
}

/// `derive()` if the file is no JSON, else its text.
template <typename Derive>
DeriveResult read_file(const std::string& path, Derive derive) {
    const InputFile input = find_input(path);
    if (!input.problem.empty()) {
        return failure(input.problem);
    }
    const File file(input.path);
    struct stat status {};
    if (const std::string problem = problem_of(file, path, status); !problem.empty()) {
        return failure(problem);
    }
    std::array<char, 256> head{};
    const ssize_t got = pread(file.fd(), head.data(), head.size(), 0);
    if (got < 0) {
        return failure(explain(errno));
    }
    if (looks_like_json({head.data(), static_cast<std::size_t>(got)})) {
        if (static_cast<std::uint64_t>(status.st_size) > max_report_size) {
            return failure(too_large_for_report);
        }
        DeriveResult result;
        result.error = read_all(file.fd(), &result.json);
        if (!result.error.empty()) {
            result.json.clear();
        }
        return result;
    }
    return derive();
}

/// What a framework's cache holds comes before the GPU's view of it.
void order_devices(std::vector<model::Device>& devices) {
    std::stable_sort(devices.begin(), devices.end(),
                     [](const model::Device& a, const model::Device& b) {
                         return a.gpu() != b.gpu() ? a.gpu() < b.gpu() : !a.is_gpu() && b.is_gpu();
                     });
}

bool process_records(const std::string& log, const model::Report& report) {
    return report.process.ended == "cut off" && is_being_written(log, report.process.pid);
}

/// That what has the name of a report's log is no use, or another process's.
void note_log_beside(const std::string& path, ReadResult& read) {
    if (read.report) {
        FoundLog log = find_log_beside(path, *read.report, Unpack::no);
        read.report->log.unreadable = std::move(log.problem);
        read.other_log_beside = log.is_of_another_process;
    }
}

}  // namespace

ReadResult report_of_log(const trace::Aggregator& figures, const DeriveResult& read) {
    ReadResult result = make_report(figures, model::Moment::end);
    result.warning = read.warning;
    if (result.report) {
        order_devices(result.report->devices);
        result.report->from_log = true;
        result.report->log.damage = read.warning;
        result.report->log.gap = read.gap;
    }
    return result;
}

std::string file_problem(const std::string& path) {
    const InputFile input = find_input(path);
    struct stat status {};
    return input.problem.empty() ? problem_of(File(input.path), path, status) : input.problem;
}

bool is_event_log(const std::string& path) {
    const File file(find_input(path).path);
    std::array<char, sizeof trace::format::magic> head{};
    return file.fd() >= 0 &&
           pread(file.fd(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()) &&
           std::memcmp(head.data(), trace::format::magic, head.size()) == 0;
}

DeriveResult read_json(const std::string& path) {
    try {
        return read_file(path, [&] { return derive_json(path); });
    } catch (const std::bad_alloc&) {
        return failure(too_large_to_read);
    }
}

DeriveResult read_with_model(const std::string& path) {
    try {
        trace::Aggregator aggregator;
        DeriveResult read = read_file(path, [&] { return aggregate_log(path, {}, aggregator); });
        if (read.error.empty() && read.from_log) {
            read.json = model::report_to_string(aggregator, model::Moment::end, read.warning);
            read.model = make_report(aggregator, model::Moment::end);
            if (read.model.report) {
                read.model.report->from_log = true;
                read.model.report->log.damage = read.warning;
                read.model.report->log.gap = read.gap;
                if (process_records(path, *read.model.report)) {
                    add_time_until_now(read.model.report->process);
                }
            }
        } else if (read.error.empty()) {
            read.model = parse_report(read.json);
            note_log_beside(path, read.model);
        }
        return read;
    } catch (const std::bad_alloc&) {
        return failure(too_large_to_read);
    }
}

ReadResult read_report(const std::string& path, const LogSinkFactory& make_sink,
                       StepSearch search) {
    ReadResult result;
    try {
        trace::Aggregator aggregator;
        bool looked = false;
        std::optional<FoundSteps> steps;
        const DeriveResult read = read_file(path, [&] {
            if (search == StepSearch::in_log && !make_sink && is_event_log(path)) {
                bool marked = false;
                steps = find_steps(path, &marked);
                looked = !marked;
                if (steps) {
                    aggregator.end_steps_at(steps->anchor);
                }
            }
            return aggregate_log(path, make_sink, aggregator);
        });
        if (!read.error.empty()) {
            result.error = read.error;
            return result;
        }
        if (read.from_log) {
            result = report_of_log(aggregator, read);
        } else {
            result = parse_report(read.json);
            result.warning = read.warning;
            note_log_beside(path, result);
            if (result.report) {
                order_devices(result.report->devices);
            }
        }
        if (result.report && read.from_log) {
            if (process_records(path, *result.report)) {
                add_time_until_now(result.report->process);
            }
            result.report->steps_looked_for = looked;
        }
        if (result.report && steps) {
            describe_found_steps(*result.report, *steps);
            if (has_marked_steps(*result.report)) {  // later in the log: these count
                return read_report(path);
            }
        }
    } catch (const std::bad_alloc&) {
        result.error = too_large_to_read;
    }
    return result;
}

}  // namespace memlab::report
