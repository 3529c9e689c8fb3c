// An event log that is followed while its program runs: each look reads what is new (trace's
// LogTail), and the report is that of reading the log as it is then. The last view of a log is for
// read_report(): it also looks at what this leaves out until then.
//
// Steps that the program does not mark are looked for each time that the log has doubled, so that
// the search costs no more than reading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "report/reading/found_steps.hpp"
#include "report/reading/log_report.hpp"
#include "report/reading/reader.hpp"
#include "trace/reading/log_tail.hpp"

namespace memlab::report {

/// Thread-safety: none.
class FollowedLog {
  public:
    enum class State : std::uint8_t {
        growing,
        ended,   ///< the recording has an end, or goes no further: it is damaged
        gone,    ///< the process is, without an end of its recording
        failed,  ///< problem() says why
    };

    /// `pid`: the process that writes it, where that is known; 0: as it says. Read through
    /// `make_sink`, if given, as read_report() does, else with `search`. The file is opened by the
    /// first refresh().
    FollowedLog(std::string path, std::uint64_t pid, LogSinkFactory make_sink, StepSearch search);
    ~FollowedLog();
    FollowedLog(const FollowedLog&) = delete;
    FollowedLog& operator=(const FollowedLog&) = delete;

    /// Reads what is new; whether there was anything, or the state changed. May throw
    /// std::bad_alloc.
    bool refresh();

    State state() const { return state_; }
    const std::string& problem() const { return problem_; }  ///< "what; what to do"
    /// Whether nobody can say from here when its process ends.
    bool is_writer_hidden() const { return hidden_; }
    /// Whether the file that is read can still be read by its name.
    bool is_at_its_path() const;
    std::uint64_t pid() const;
    /// Records read so far, for tests: a refresh reads no others than the new ones.
    std::uint64_t records_read() const { return records_read_; }

    /// Of what was read so far. May throw std::bad_alloc.
    ReadResult report();
    /// Its process at this moment: it runs, where its log still grows.
    void tell_now(model::Process& process) const;

  private:
    bool open_file();
    void begin();
    bool look();
    void read_on();
    void find_steps_at_times();
    void fail(const std::string& problem);
    LogWriterState writer() const;
    std::uint64_t size() const;

    const std::string path_;
    const std::uint64_t pid_;
    const LogSinkFactory make_sink_;
    StepSearch search_;
    State state_ = State::growing;
    std::string problem_;
    bool hidden_ = false;
    int restarts_ = 0;  ///< after what looked like damage
    int descriptor_ = -1;
    std::uint64_t records_read_ = 0;
    std::uint64_t next_search_ = 0;  ///< in records
    bool looked_ = false;
    std::optional<FoundSteps> steps_;
    std::unique_ptr<trace::Aggregator> figures_;
    std::unique_ptr<trace::RecordSink> sink_;  ///< null: the aggregator is
    std::unique_ptr<trace::LogTail> tail_;
    trace::LogReadResult read_;
};

}  // namespace memlab::report
