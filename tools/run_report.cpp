#include "tools/run_report.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "report/reader.hpp"
#include "report/summary.hpp"
#include "tools/diagnostics.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

/// Summaries of more processes than this would push the program's own output off the screen.
constexpr std::size_t most_summaries = 4;

bool exists(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0;
}

/// Still writing: a process that the command left behind.
bool still_runs(pid_t pid) {
    return kill(pid, 0) == 0 || errno == EPERM;
}

/// Puts `text` at `path` at once and whole, or not at all; the system's error, 0 when it is there.
int write_whole(const std::string& path, const std::string& text) {
    std::string temporary = path + ".XXXXXX";
    const int fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    int error = 0;
    std::size_t done = 0;
    while (done < text.size() && error == 0) {
        const ssize_t written = write(fd, text.data() + done, text.size() - done);
        if (written < 0 && errno != EINTR) {
            error = errno;
        }
        done += written > 0 ? static_cast<std::size_t>(written) : 0;
    }
    // A new file has the usual permissions, not a temporary file's.
    const mode_t mask = umask(0);
    umask(mask);
    if (error == 0 && (fchmod(fd, 0666 & ~mask) != 0 || fsync(fd) != 0)) {
        error = errno;
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    // link never replaces a file that another process put there meanwhile.
    if (error == 0 && link(temporary.c_str(), path.c_str()) != 0) {
        error = errno;
        const bool no_links = error == EPERM || error == ENOTSUP || error == ENOSYS;
        if (no_links && !exists(path)) {
            error = rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
        }
    }
    unlink(temporary.c_str());
    return error;
}

struct Recorded {
    RunFiles files;
    bool recovered = false;
    Report report;
    std::string warning;
};

class RunReport {
  public:
    RunReport(const LaunchResult& result, const RunReportOptions& options)
        : result_(result), options_(options) {
        text_.style = style_for(STDERR_FILENO, ColorMode::automatic, false);
        text_.top = 3;
        text_.working_directory = options.working_directory;
    }

    void add(const RunFiles& files, bool is_command) {
        Recorded recorded;
        recorded.files = files;
        if (!exists(files.json)) {
            if (files.pid != result_.pid && still_runs(files.pid)) {
                ++running_;
                return;
            }
            if (!recover(files, is_command)) {
                return;
            }
            recorded.recovered = true;
        }
        ReadResult read = read_report(files.json);
        if (!read.report) {
            error(files.json + ": " + read.error);
            return;
        }
        recorded.report = std::move(*read.report);
        recorded_.push_back(std::move(recorded));
    }

    void print(bool any) {
        if (options_.quiet) {
            return;
        }
        if (!any) {
            tools::diagnostics().info("no process of this run used CUDA; nothing was recorded");
            return;
        }
        std::stable_sort(recorded_.begin(), recorded_.end(), [](const auto& a, const auto& b) {
            return peak(a.report) > peak(b.report);
        });
        for (std::size_t i = 0; i < recorded_.size(); ++i) {
            if (i == most_summaries) {
                tools::diagnostics().info("{} more reports beside these", recorded_.size() - i);
                break;
            }
            print_one(recorded_[i]);
        }
        if (running_ != 0) {
            tools::diagnostics().info(
                "{} still running; the report comes at the end of each",
                running_ == 1 ? "1 process is" : std::to_string(running_) + " processes are");
        }
    }

  private:
    static std::uint64_t peak(const Report& report) {
        std::uint64_t most = 0;
        for (const Device& device : report.devices) {
            most = std::max(most, device.curve(Curve::reserved).peak_bytes);
        }
        return most;
    }

    static void error(const std::string& text) {
        tools::diagnostics().error("{}", printable(text, false));
    }

    bool recover(const RunFiles& files, bool is_command) {
        if (!exists(files.log)) {
            error("process " + std::to_string(files.pid) + " left neither " + files.json + " nor " +
                  files.log + "; were they removed?");
            return false;
        }
        DeriveResult derived = derive_json(files.log);
        if (derived.json.empty()) {
            error(files.log + ": " + derived.error);
            return false;
        }
        if (is_command && WIFSIGNALED(result_.wait_status)) {
            derived.json = with_end(derived.json, signal_name(WTERMSIG(result_.wait_status)), -1);
        } else if (is_command && WIFEXITED(result_.wait_status)) {
            derived.json = with_end(derived.json, "", WEXITSTATUS(result_.wait_status));
        }
        const int failed = write_whole(files.json, derived.json);
        if (failed != 0) {
            error("cannot write " + files.json + " (" + std::strerror(failed) +
                  "); memlab-report reads " + files.log + " as well");
            return false;
        }
        return true;
    }

    std::string shown(const std::string& path) const {
        const std::string folder = options_.working_directory + "/";
        const bool below = path.compare(0, folder.size(), folder) == 0;
        return printable(below ? path.substr(folder.size()) : path, false);
    }

    void print_one(const Recorded& recorded) {
        if (options_.summary) {
            Symbolizer symbolizer;
            Resolver resolver(recorded.report, &symbolizer);
            const Summary summary =
                summarize(recorded.files.json, recorded.report, recorded.warning, resolver);
            std::cerr << "memlab-run: " << render_short(summary, text_);
        }
        const std::string indent = options_.summary ? "  " : "memlab-run: ";
        std::cerr << indent << "report  " << shown(recorded.files.json)
                  << (recorded.recovered ? " (from the log: the program wrote none)" : "") << "\n";
        if (options_.summary) {
            std::cerr << indent << "more    memlab-report " << shown(recorded.files.json) << "\n";
        }
    }

    const LaunchResult& result_;
    const RunReportOptions& options_;
    TextOptions text_;
    std::vector<Recorded> recorded_;
    std::size_t running_ = 0;
};

}  // namespace

void report_run(const std::vector<RunFiles>& files, const LaunchResult& result,
                const RunReportOptions& options) {
    RunReport report(result, options);
    // An exec keeps the process id: only the last image of the command ended as the command did.
    std::size_t last_of_command = files.size();
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (files[i].pid == result.pid) {
            last_of_command = i;
        }
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        report.add(files[i], i == last_of_command);
    }
    report.print(!files.empty());
}

}  // namespace memlab::tools
