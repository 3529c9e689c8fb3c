// Writes a session's reports: at its end, before a signal ends the process, and snapshots.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <new>
#include <string>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/process/output_files.hpp"
#include "interpose/process/report_signals.hpp"
#include "interpose/process/session.hpp"
#include "model/json_writer.hpp"
#include "model/report_file.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

/// The minimum to report when nothing can be written.
void warn_with_peaks(const trace::Aggregator& aggregate) {
    for (const auto& device : aggregate.devices()) {
        if (device != nullptr) {
            warn(device->info.label() + ": at most " +
                 std::to_string(device->curve(trace::CurveName::allocated).peak) +
                 " bytes allocated at a time");
        }
    }
}

}  // namespace

void Session::write_final_report(const trace::Aggregator& aggregate,
                                 const std::string& log_problem) {
    if (!log_problem.empty()) {
        warn(log_problem);
    }
    if (report_path_.empty()) {
        return;
    }
    const model::WriteResult written =
        model::write_report(aggregate, report_path_, model::Existing::refuse, files_.mode);
    if (written.ok()) {
        if (!settings_.keep_log && log_problem.empty() &&
            aggregate.ended() != trace::Ended::cut_off) {
            unlink(files_.log.c_str());
        }
        return;
    }
    // Most likely a full disk; the aggregated data is still in memory.
    model::WriteResult elsewhere;
    std::string path = files_.fallback_report;
    constexpr int max_names = 100;
    for (int number = 2; number < max_names; ++number) {
        elsewhere =
            model::write_report(aggregate, path, model::Existing::refuse, mode_in_shared_folder);
        if (elsewhere.error_number != EEXIST) {
            break;
        }
        constexpr std::size_t suffix = 5;  // ".json"
        path = files_.fallback_report;
        path.insert(path.size() - suffix, "." + std::to_string(number));
    }
    warn(written.error +
         (elsewhere.ok() ? "; it is " + path + " instead" : "; " + elsewhere.error) +
         "; the event log " + files_.log +
         (access(files_.log.c_str(), F_OK) != 0 ? std::string(" was removed")
          : log_problem.empty()                 ? " holds everything: memlab-report reads it"
                                : " holds what came before it stopped: memlab-report reads it"));
    if (!elsewhere.ok()) {
        warn_with_peaks(aggregate);
    }
}

std::string Session::write_snapshot(std::string_view name, std::uint64_t max_wait_ns,
                                    std::string* written) {
    std::string path(name);
    if (name.find('/') == std::string_view::npos) {
        path = report_path_;
        if (path.empty()) {
            return "there is no report to write";
        }
        constexpr std::string_view extension = ".json";
        if (path.size() > extension.size() && path.ends_with(extension)) {
            path.resize(path.size() - extension.size());
        }
        path.append(".").append(name).append(extension);
    }
    if (written != nullptr) {
        *written = path;
    }
    std::string text;
    bool complete = false;
    const bool visited = recorder_->with_frozen_aggregate(
        profiler::monotonic_ns() + max_wait_ns, [&](const trace::Aggregator& aggregate) {
            try {
                text = model::report_to_string(aggregate, model::Moment::running);
                complete = true;
            } catch (const std::bad_alloc&) {  // `complete` stays false
            }
        });
    if (!complete) {
        return "cannot write " + path + ": " +
               (visited ? "out of memory" : "the recording has ended, or a thread holds its lock");
    }
    return model::write_text(text, path, model::Existing::replace).error;
}

void Session::write_report_before_death(std::uint64_t max_wait_ns) noexcept {
    recorder_->with_frozen_aggregate(profiler::monotonic_ns() + max_wait_ns,
                                     [&](const trace::Aggregator& aggregate) {
                                         try {
                                             write_final_report(aggregate, {});
                                         } catch (const std::bad_alloc&) {  // the event log remains
                                         }
                                     });
}

void Session::report_for_signals(std::uint64_t signals) {
    constexpr std::uint64_t max_wait_ns = 4'000'000'000;  // less than the handler waits
    Session* const session = current();
    if (session == nullptr) {
        return;
    }
    bool ends = false;
    for (int signal = 1; signal < 64; ++signal) {
        if ((signals >> signal & 1) == 0) {
            continue;
        }
        if (!goes_on_after(signal)) {
            ends = true;
            continue;
        }
        try {
            const std::string problem =
                session->write_snapshot(signal == SIGUSR1 ? "SIGUSR1" : "SIGUSR2", max_wait_ns);
            if (!problem.empty()) {
                warn(problem);
            }
        } catch (const std::bad_alloc&) {
            warn("out of memory while writing a report");
        }
    }
    if (ends && take_final_report()) {
        session->write_report_before_death(max_wait_ns);
    }
}

}  // namespace memlab::interpose
