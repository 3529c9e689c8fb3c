// The recordings of running programs, for views that are shown again and again: a reader
// (RecordingReader) that reads of an event log only what is new, and of a report nothing while its
// file stays the same.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "report/reading/followed_log.hpp"
#include "report/reading/reader.hpp"

namespace memlab::report {

class FollowedRecordings {
  public:
    /// As of a FollowedLog.
    explicit FollowedRecordings(StepSearch search, LogSinkFactory make_sink = {});

    /// A file that must be an event log. `pid`: the process that writes it, where that is known.
    void add_log(const std::string& path, std::uint64_t pid = 0);

    /// The report as of the latest refresh(); reads a file that was not read before. Thread-safe.
    ReadResult read(const std::string& path);

    /// Reads what is new in the logs that were read. Whether there was anything.
    bool refresh();

    /// The log, if it was read; else null.
    const FollowedLog* find_log(const std::string& path) const;
    bool any_log() const { return !logs_.empty(); }
    /// Whether none of the logs that have a record grows any more.
    bool all_ended() const;
    /// say(path, pid) for each log whose process is gone without an end.
    void note_gone(const std::function<void(const std::string&, std::uint64_t)>& say) const;

  private:
    struct Log {
        std::unique_ptr<FollowedLog> log;
        std::mutex mutex;
        bool was_read = false;
        bool is_new = true;  ///< since the report was made
        ReadResult latest;
    };
    struct Report {
        timespec changed{};
        ino_t file = 0;
        off_t size = -1;
        ReadResult read;
    };

    Log& log_of(const std::string& path, std::uint64_t pid);
    static ReadResult read_log(Log& log);
    ReadResult read_file(const std::string& path);

    const StepSearch search_;
    const LogSinkFactory make_sink_;
    mutable std::mutex mutex_;  ///< of the maps; what they hold stays where it is
    std::map<std::string, Log> logs_;
    std::map<std::string, Report> reports_;
};

}  // namespace memlab::report
