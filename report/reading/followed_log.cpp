#include "report/reading/followed_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "report/reading/find_event_log.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

namespace {

/// Below, a loop is hardly seen.
constexpr std::uint64_t first_search = 4096;
constexpr int most_restarts = 3;

/// "give its event log, FILE" of what is no log.
std::string no_log(const std::string& path) {
    const std::string log = name_of_log_beside(path);
    return "a report, which does not grow; " +
           (log.empty() ? std::string("follow an event log (*.memlog), or show it without --follow")
                        : "follow its event log, " + log);
}

}  // namespace

FollowedLog::FollowedLog(std::string path, std::uint64_t pid, LogSinkFactory make_sink,
                         StepSearch search)
    : path_(std::move(path)), pid_(pid), make_sink_(std::move(make_sink)), search_(search) {}

FollowedLog::~FollowedLog() {
    tail_.reset();
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

void FollowedLog::fail(const std::string& problem) {
    state_ = State::failed;
    problem_ = problem;
}

bool FollowedLog::open_file() {
    struct stat status {};
    if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        fail("only a file can be followed; give an event log (*.memlog) itself");
        return false;
    }
    if (descriptor_ >= 0 && !is_at_its_path()) {  // empty, and replaced since
        close(descriptor_);
        descriptor_ = -1;
    }
    if (descriptor_ < 0) {
        descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    }
    char first = 0;
    const ssize_t got = descriptor_ < 0 ? 0 : pread(descriptor_, &first, 1, 0);
    if (descriptor_ >= 0 && (got == 0 || (got == 1 && first == 0))) {
        return false;  // its process has just created it
    }
    if (const std::string problem = file_problem(path_); !problem.empty()) {
        fail(problem);
    } else if (first == '{') {
        fail(no_log(path_));
    } else if (!is_event_log(path_)) {
        fail("not an event log that can be followed; give a *.memlog that is not compressed");
    } else {
        begin();
    }
    return tail_ != nullptr;
}

/// From the log's start on, or from its newest checkpoint.
void FollowedLog::begin() {
    tail_.reset();
    sink_.reset();
    figures_ = std::make_unique<trace::Aggregator>();
    if (steps_) {
        figures_->end_steps_at(steps_->anchor);
    }
    if (make_sink_) {
        sink_ = make_sink_(path_, *figures_);
    }
    read_ = {};
    tail_ = std::make_unique<trace::LogTail>(
        descriptor_, path_, sink_ ? *sink_ : static_cast<trace::RecordSink&>(*figures_),
        make_sink_ ? trace::LogPart::everything : trace::LogPart::sums);
}

void FollowedLog::read_on() {
    const std::uint64_t before = read_.records;
    read_ = tail_->read();
    records_read_ += read_.records - before;
}

std::uint64_t FollowedLog::size() const {
    struct stat status {};
    return fstat(descriptor_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool FollowedLog::is_at_its_path() const {
    struct stat here {};
    struct stat there {};
    return descriptor_ >= 0 && fstat(descriptor_, &here) == 0 && stat(path_.c_str(), &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

std::uint64_t FollowedLog::pid() const {
    return pid_ != 0 || figures_ == nullptr ? pid_ : figures_->process().pid;
}

LogWriterState FollowedLog::writer() const {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || pid() == 0) {
        return LogWriterState::unknown;
    }
    return find_log_writer(status, pid(), pid_ != 0 ? std::string() : figures_->process().host);
}

bool FollowedLog::refresh() {
    if (state_ != State::growing) {
        return false;
    }
    if (tail_ == nullptr && !open_file()) {
        return state_ == State::failed;
    }
    const std::uint64_t before = records_read_;
    while (look()) {
    }
    if (state_ == State::growing) {
        find_steps_at_times();
    }
    return records_read_ != before || state_ != State::growing;
}

/// Whether to look again at once.
bool FollowedLog::look() {
    // Asked before: what a process has written that is gone by now is all there.
    const bool knows_writer = pid() != 0;
    const LogWriterState by = writer();
    hidden_ = by == LogWriterState::unknown && pid() != 0;
    const std::uint64_t before = records_read_;
    const bool shrank = size() < read_.offset;
    if (!shrank) {
        read_on();
    }
    if (tail_->error() != 0) {
        fail(std::string("cannot be read any more (") + std::strerror(tail_->error()) +
             "); copy what there is, and show that");
    } else if (shrank || read_.status == trace::LogStatus::damaged) {
        if (restarts_++ < most_restarts) {  // a writer that was met in the middle of a change
            begin();
            read_on();
            if (shrank && !figures_->log_stopped_ns() &&
                read_.status != trace::LogStatus::complete) {
                fail("was cut short while it was followed; show what is left without --follow");
            }
            return state_ == State::growing;
        }
        if (shrank) {
            fail("was cut short while it was followed; show what is left without --follow");
        } else {
            state_ = State::ended;
        }
    } else if (read_.status == trace::LogStatus::complete) {
        state_ = State::ended;
    } else if (!read_.is_log()) {
        fail(describe_reading(path_, read_).error);
    } else if (by == LogWriterState::gone) {
        if (records_read_ != before) {
            return true;
        }
        state_ = State::gone;
    } else if (!knows_writer && pid() != 0) {
        return true;
    } else if (!is_at_its_path()) {
        fail("was removed or replaced while it was followed; follow the file that is written now");
    }
    return false;
}

void FollowedLog::find_steps_at_times() {
    if (search_ == StepSearch::none || make_sink_ || steps_ ||
        read_.records < std::max(first_search, next_search_)) {
        return;
    }
    next_search_ = 2 * read_.records;
    bool marked = false;
    steps_ = find_steps(path_, &marked);
    looked_ = !marked;
    if (marked) {
        search_ = StepSearch::none;
    } else if (steps_) {
        begin();
        read_on();
    }
}

void FollowedLog::tell_now(model::Process& process) const {
    if (process.recorded_ns != 0) {
        process.duration_ns = process.recorded_ns;
        process.recorded_ns = 0;
    }
    process.recording = state_ == State::growing;
    if (process.recording && !hidden_) {
        add_time_until_now(process);
    }
}

ReadResult FollowedLog::report() {
    ReadResult result;
    if (state_ == State::failed) {
        result.error = problem_;
        return result;
    }
    if (figures_ == nullptr || read_.records == 0) {
        result.error = "an event log without a whole record yet; its process has just begun";
        return result;
    }
    if (auto* const follower = dynamic_cast<LogFollower*>(sink_.get())) {
        follower->finish(read_);
    }
    result = report_of_log(*figures_, describe_reading(path_, read_));
    if (!result.report) {
        return result;
    }
    tell_now(result.report->process);
    result.report->steps_looked_for = looked_;
    if (steps_) {
        describe_found_steps(*result.report, *steps_);
        if (has_marked_steps(*result.report)) {  // later in the log: these count
            steps_.reset();
            search_ = StepSearch::none;
            begin();
            read_on();
            return report();
        }
    }
    return result;
}

}  // namespace memlab::report
