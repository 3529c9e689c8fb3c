#include "tools/follow/follow.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "report/reading/find_event_log.hpp"
#include "report/reading/followed_recordings.hpp"
#include "report/runs/collection.hpp"
#include "report/text/progress.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "tools/diagnostics.hpp"
#include "tools/follow/process_log.hpp"
#include "tools/follow/screen.hpp"

namespace memlab::tools {

namespace {

using namespace std::chrono_literals;
using report::FollowedLog;
using Clock = FollowScreen::Clock;

constexpr int bad_input = 2;
/// A run whose processes have all ended goes on for so long: another may start.
constexpr auto least_patience = 3s;

std::string time_now() {
    return report::format_wall_time(report::wall_time_now_ns());
}

int say(const std::string& line) {
    std::cout.flush();
    print_diagnostic(report::printable(line, false));
    return bad_input;
}

/// What changes when a recording appears in a folder, or a report is written.
std::string contents_of(const std::string& folder) {
    std::vector<std::string> found;
    if (DIR* const open = opendir(folder.c_str())) {
        while (const dirent* const entry = readdir(open)) {
            const auto name = report::recording_name(entry->d_name);
            struct stat status {};
            if (!name || fstatat(dirfd(open), entry->d_name, &status, 0) != 0) {
                continue;
            }
            found.push_back(std::string(entry->d_name) +
                            (name->is_log ? ""
                                          : "," + std::to_string(status.st_size) + "," +
                                                std::to_string(status.st_mtim.tv_nsec)));
        }
        closedir(open);
    }
    std::sort(found.begin(), found.end());
    std::string all;
    for (const std::string& each : found) {
        all.append(each).append("\n");
    }
    return all;
}

/// Each log of a run stays open.
void allow_many_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/// Takes what is printed meanwhile, and the diagnostics.
class Captured {
  public:
    Captured() : before_(std::cout.rdbuf(text_.rdbuf())) { collect_diagnostics(&diagnostics_); }
    ~Captured() {
        collect_diagnostics(nullptr);
        std::cout.rdbuf(before_);
    }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;

    std::string text() const { return text_.str(); }
    const std::vector<std::string>& diagnostics() const { return diagnostics_; }

  private:
    std::ostringstream text_;
    std::streambuf* before_;
    std::vector<std::string> diagnostics_;
};

/// A JSON document on one line: ends of lines are between its values only.
std::string on_one_line(const std::string& json) {
    std::string line;
    for (std::size_t at = 0; at < json.size(); ++at) {
        if (json[at] == '\n') {
            at = std::min(json.find_first_not_of(" \n", at), json.size()) - 1;
        } else {
            line += json[at];
        }
    }
    return line + "\n";
}

class Follower {
  public:
    explicit Follower(const FollowRequest& request)
        : request_(request),
          recordings_(request.search, request.make_sink),
          interval_(std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(request.interval_s))),
          on_terminal_(!request.json && FollowScreen::is_possible()) {}

    int run() {
        if (!find_files()) {
            return bad_input;
        }
        allow_many_files();
        // What reads long draws no line of its own into the view.
        report::show_progress_on(-1);
        const bool asked_to_end = on_terminal_ ? on_terminal() : in_lines();
        report::show_progress_on(report::terminal_for_progress());
        if (!failed_.empty()) {
            if (on_terminal_) {
                std::cout << last_;
            }
            return say(failed_);
        }
        if (asked_to_end) {
            std::cout << last_;
            std::cout.flush();
            return EXIT_SUCCESS;
        }
        return show_last();
    }

  private:
    bool find_files() {
        for (std::string& file : request_.files) {
            if (const pid_t process = process_meant_by(file); process != 0) {
                std::string problem;
                const std::string log = log_of_process(process, &problem);
                if (log.empty()) {
                    say(problem);
                    return false;
                }
                file = log;
                recordings_.add_log(file, static_cast<std::uint64_t>(process));
            } else if (report::is_folder(file)) {
                folders_.push_back(file);
            } else {
                recordings_.add_log(file);
            }
        }
        for (const std::string& folder : folders_) {
            if (const std::string without = process_without_log(folder); !without.empty()) {
                say(without);
            } else if (contents_of(folder).empty()) {
                say(folder + ": no recording yet; waiting for the first one");
            }
        }
        return true;
    }

    /// Reads what is new. Whether there was anything.
    bool look() {
        bool changed = recordings_.refresh();
        std::string contents;
        for (const std::string& folder : folders_) {
            contents += contents_of(folder) + "\n";
        }
        if (contents != contents_) {
            contents_ = std::move(contents);
            changed = true;
        }
        if (changed) {
            changed_ = Clock::now();
        }
        return changed;
    }

    /// Whether nothing more is to come.
    bool is_over() {
        for (const std::string& file : request_.files) {
            const FollowedLog* const log = recordings_.find_log(file);
            if (log == nullptr) {
                continue;
            }
            if (log->state() == FollowedLog::State::failed) {
                failed_ = file + ": " + log->problem();
                return true;
            }
            if (log->is_writer_hidden() && !std::exchange(said_hidden_, true) && !on_terminal_) {
                say(file +
                    ": its process is not seen from here; this ends with the recording, or "
                    "with Ctrl-C");
            }
        }
        const auto patience = folders_.empty()
                                  ? Clock::duration(0)
                                  : std::max<Clock::duration>(least_patience, 2 * interval_);
        const bool any = recordings_.any_log() || contents_.find(".json") != std::string::npos;
        return any && recordings_.all_ended() && Clock::now() - changed_ >= patience;
    }

    std::string view() {
        const Captured captured;
        request_.show([this](const std::string& path) { return recordings_.read(path); });
        std::string text = captured.text();
        if (request_.json) {
            return text.empty() ? text : on_one_line(text);
        }
        if (text.empty()) {
            for (const std::string& line : captured.diagnostics()) {
                waits_for_ = line;
            }
        }
        return text;
    }

    /// Whether the user has ended it.
    bool on_terminal() {
        FollowScreen screen(request_.ascii);
        for (;;) {
            const Clock::time_point next = Clock::now() + interval_;
            look();
            if (is_over()) {
                return false;
            }
            for (;;) {
                last_ = view();
                screen.show(last_.empty() ? waiting() : last_, bottom());
                const FollowScreen::Event event = screen.wait(next);
                if (event == FollowScreen::Event::ended) {
                    return true;
                }
                if (event == FollowScreen::Event::time) {
                    break;
                }
            }
        }
    }

    std::string waiting() const {
        return waits_for_.empty() ? "Waiting for the first recording..." : waits_for_ + "\n";
    }
    std::string bottom() const {
        std::ostringstream text;
        text << time_now().substr(11) << (request_.ascii ? ", " : " · ") << "every "
             << request_.interval_s << " s" << (request_.ascii ? ", " : " · ") << "q ends";
        return text.str();
    }

    /// Whether whoever reads the lines has gone.
    bool in_lines() {
        for (;;) {
            const Clock::time_point next = Clock::now() + interval_;
            const bool changed = look();
            if (is_over()) {
                return false;
            }
            if (changed) {
                print(view());
            }
            pollfd reader{STDOUT_FILENO, 0, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
            const auto wait = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
            if (poll(&reader, 1, wait) > 0) {
                return true;
            }
        }
    }

    void print(const std::string& text) {
        if (text.empty()) {
            return;
        }
        separate();
        std::cout << text;
        std::cout.flush();
    }
    void separate() {
        if (std::exchange(printed_, true) && !request_.json) {
            std::cout << "--- " << time_now() << " ---\n";
        }
    }

    /// As without following; of a log that has no name any more what was read.
    int show_last() {
        bool whole = true;
        for (const std::string& file : request_.files) {
            const FollowedLog* const log = recordings_.find_log(file);
            if (log != nullptr && !log->is_at_its_path()) {
                whole = false;
            }
        }
        recordings_.note_gone([](const std::string& file, std::uint64_t pid) {
            say(file + ": process " + std::to_string(pid) +
                " is gone without an end of its recording: it was killed, or ended by _exit or "
                "exec");
        });
        separate();
        const report::RecordingReader reader = [this](const std::string& path) {
            return recordings_.read(path);
        };
        if (!request_.json) {
            return request_.show(whole ? report::RecordingReader() : reader);
        }
        int code = EXIT_SUCCESS;
        std::string text;
        std::vector<std::string> errors;
        {
            const Captured captured;
            code = request_.show(whole ? report::RecordingReader() : reader);
            text = captured.text();
            errors = captured.diagnostics();
        }
        std::cout << on_one_line(text);
        std::cout.flush();
        for (const std::string& error : errors) {
            print_diagnostic(error);
        }
        return code;
    }

    const FollowRequest& request_;
    report::FollowedRecordings recordings_;
    const Clock::duration interval_;
    const bool on_terminal_;
    std::vector<std::string> folders_;
    std::string contents_ = "?";  ///< of the folders
    Clock::time_point changed_ = Clock::now();
    std::string failed_;
    std::string last_;
    std::string waits_for_;
    bool printed_ = false;
    bool said_hidden_ = false;
};

}  // namespace

int follow(const FollowRequest& request) {
    return Follower(request).run();
}

}  // namespace memlab::tools
