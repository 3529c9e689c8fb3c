#include "report/reading/followed_recordings.hpp"

#include <algorithm>
#include <utility>

#include "report/reading/find_event_log.hpp"

namespace memlab::report {

FollowedRecordings::FollowedRecordings(StepSearch search, LogSinkFactory make_sink)
    : search_(search), make_sink_(std::move(make_sink)) {}

FollowedRecordings::Log& FollowedRecordings::log_of(const std::string& path, std::uint64_t pid) {
    const std::scoped_lock lock(mutex_);
    Log& log = logs_[path];
    if (log.log == nullptr) {
        log.log = std::make_unique<FollowedLog>(path, pid, make_sink_, search_);
    }
    return log;
}

void FollowedRecordings::add_log(const std::string& path, std::uint64_t pid) {
    log_of(path, pid);
}

ReadResult FollowedRecordings::read(const std::string& path) {
    const auto name = recording_name(path);
    return name && !name->is_log && find_log(path) == nullptr ? read_file(path)
                                                              : read_log(log_of(path, 0));
}

ReadResult FollowedRecordings::read_log(Log& log) {
    const std::scoped_lock lock(log.mutex);
    try {
        if (!std::exchange(log.was_read, true)) {
            log.log->refresh();
        }
        if (log.is_new) {
            log.latest = log.log->report();
            log.is_new = false;
        } else if (log.latest.report && log.latest.report->process.recording) {
            log.log->tell_now(log.latest.report->process);  // only the time went on
        }
        return log.latest;
    } catch (const std::bad_alloc&) {
        ReadResult result;
        result.error = too_large_to_read;
        return result;
    }
}

ReadResult FollowedRecordings::read_file(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return read_report(path, {}, search_);
    }
    {
        const std::scoped_lock lock(mutex_);
        const Report& known = reports_[path];
        if (known.size == status.st_size && known.file == status.st_ino &&
            known.changed.tv_sec == status.st_mtim.tv_sec &&
            known.changed.tv_nsec == status.st_mtim.tv_nsec) {
            return known.read;
        }
    }
    ReadResult read = read_report(path, {}, search_);
    const std::scoped_lock lock(mutex_);
    reports_[path] = {status.st_mtim, status.st_ino, status.st_size, read};
    return read;
}

bool FollowedRecordings::refresh() {
    bool changed = false;
    for (auto& [path, log] : logs_) {
        log.was_read = true;
        if (log.log->refresh()) {
            log.is_new = true;
            changed = true;
        }
    }
    return changed;
}

const FollowedLog* FollowedRecordings::find_log(const std::string& path) const {
    const std::scoped_lock lock(mutex_);
    const auto found = logs_.find(path);
    return found == logs_.end() ? nullptr : found->second.log.get();
}

bool FollowedRecordings::all_ended() const {
    return std::all_of(logs_.begin(), logs_.end(), [](const auto& each) {
        // One that is empty may be what a program has left that ended at once.
        return each.second.log->state() != FollowedLog::State::growing ||
               each.second.log->records_read() == 0;
    });
}

void FollowedRecordings::note_gone(
    const std::function<void(const std::string&, std::uint64_t)>& say) const {
    for (const auto& [path, log] : logs_) {
        if (log.log->state() == FollowedLog::State::gone) {
            say(path, log.log->pid());
        }
    }
}

}  // namespace memlab::report
