// The tracks that a trace has of a process: perfetto.cpp says which.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/bounded_sum.hpp"
#include "report/exports/input.hpp"
#include "report/exports/output.hpp"
#include "report/exports/trace_packets.hpp"
#include "report/summary/stack_text.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "trace/record.hpp"

namespace memlab::report::exports {

/// A name for a slice or track, which must have one.
inline std::string_view shown(std::string_view name) {
    return name.empty() ? std::string_view("?") : name;
}

/// Tracks of one name and parent: a slice takes one that no other slice is on.
class Lanes {
  public:
    Lanes() = default;
    Lanes(std::uint64_t parent, std::string name) : parent_(parent), name_(std::move(name)) {}

    std::uint64_t take(TracePackets& out) {
        if (free_.empty()) {
            return out.add_track(parent_, shown(name_));
        }
        const std::uint64_t track = free_.back();
        free_.pop_back();
        return track;
    }
    void give_back(std::uint64_t track) { free_.push_back(track); }

  private:
    std::uint64_t parent_ = 0;
    std::string name_;
    std::vector<std::uint64_t> free_;
};

/// The tracks of a process, and what log and report have alike. Times are the process's own.
class ProcessTracks {
  public:
    ProcessTracks(const Input& input, TracePackets& out, std::uint64_t pid, std::uint64_t start_ns)
        : report_(input.recording.report), out_(out), pid_(pid), start_ns_(start_ns) {
        out_.begin_sequence();
        const model::Process& process = report_.process;
        const std::string name =
            clean_name(input.process_name.empty() ? report::base_name(process.executable)
                                                  : input.process_name);
        std::vector<std::string> labels;
        if (!process.host.empty()) {
            labels.push_back("host " + clean_name(process.host));
        }
        if (pid != process.pid) {
            labels.push_back("pid " + std::to_string(process.pid));
        }
        process_ = out_.add_process(pid, shown(name), labels);
        for (const auto& [thread, thread_name] : report_.threads) {
            if (!thread_name.empty()) {
                add_thread(thread, clean_name(thread_name));
            }
        }
    }

    TracePackets& out() { return out_; }
    std::uint64_t process() const { return process_; }

    void begin(TracePackets::Type type, std::uint64_t track, std::uint64_t time_ns) {
        out_.begin_event(type, track, model::saturating_add(start_ns_, time_ns));
    }
    void end_slice(std::uint64_t track, std::uint64_t time_ns) {
        begin(TracePackets::Type::slice_end, track, time_ns);
        out_.end_event();
    }

    /// The track of a name, below the process.
    std::uint64_t named(const std::string& name) {
        std::uint64_t& track = named_[name];
        if (track == 0) {
            track = out_.add_track(process_, shown(name));
        }
        return track;
    }
    /// The track below the thread for scopes of a domain.
    std::uint64_t scopes_of(std::uint64_t thread, std::uint64_t domain) {
        std::uint64_t& track = scopes_[{thread, domain}];
        if (track == 0) {
            const auto known = threads_.find(thread);
            track = out_.add_track(known != threads_.end() ? known->second : add_thread(thread, ""),
                                   "scopes");
        }
        return track;
    }

    /// The counters of a device whose curves change with most events.
    void usual_device(const std::string& device, const std::vector<const char*>& curves) {
        std::vector<std::uint64_t> tracks;
        tracks.reserve(curves.size());
        for (const char* const curve : curves) {
            tracks.push_back(counter_track(device, curve));
        }
        out_.usual_counters(std::move(tracks));
    }
    void counter(const std::string& device, const char* curve, std::uint64_t time_ns,
                 std::uint64_t bytes) {
        out_.counter(counter_track(device, curve), model::saturating_add(start_ns_, time_ns),
                     bytes);
    }

    void mark(std::string_view name, std::uint64_t time_ns) {
        begin(TracePackets::Type::instant, named("marks"), time_ns);
        out_.category("mark");
        out_.name(shown(name));
        out_.end_event();
    }

    void failure(std::uint64_t device, std::uint64_t requested, std::string_view api,
                 std::uint64_t time_ns, std::uint64_t thread) {
        begin(TracePackets::Type::instant, named("out of memory"), time_ns);
        out_.category("oom");
        out_.name("out of memory: " + report::format_bytes(requested));
        out_.argument("device", device);
        out_.argument("requested_bytes", requested);
        out_.argument("api", api);
        out_.argument("thread", clean_name(report::thread_text(report_, thread)));
        out_.end_event();
    }

  private:
    std::uint64_t counter_track(const std::string& device, const char* curve) {
        const std::string name = clean_name(device) + " " + curve;
        std::uint64_t& track = counters_[name];
        if (track == 0) {
            track = out_.add_counter(process_, name);
        }
        return track;
    }
    std::uint64_t add_thread(std::uint64_t thread, const std::string& name) {
        return threads_[thread] = out_.add_thread(pid_, thread, name);
    }

    const model::Report& report_;
    TracePackets& out_;
    std::uint64_t pid_;
    std::uint64_t start_ns_;
    std::uint64_t process_ = 0;
    std::map<std::string, std::uint64_t> named_;
    std::map<std::string, std::uint64_t> counters_;
    std::map<std::uint64_t, std::uint64_t> threads_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> scopes_;
};

/// Kernels, copies and fills. Work that overlaps other work of its stream is on a track of its own.
class WorkTracks {
  public:
    explicit WorkTracks(ProcessTracks& tracks) : tracks_(tracks) {}

    void add(const trace::Work& work, const std::string& mangled, const Stretch& stretch) {
        const std::uint64_t begin_ns = std::max(work.start_ns, stretch.from_ns);
        const std::uint64_t end_ns = std::max(begin_ns, std::min(work.end_ns, stretch.until_ns));
        if (work.end_ns < stretch.from_ns || work.start_ns > stretch.until_ns) {
            return;
        }
        TracePackets& out = tracks_.out();
        const std::uint64_t track = free_track(work, begin_ns, end_ns);
        tracks_.begin(TracePackets::Type::slice_begin, track, begin_ns);
        out.category(trace::name_of(work.kind));
        out.name(work.kind == trace::WorkKind::kernel
                     ? shown(function(work, mangled))
                     : std::string_view(trace::name_of(work.kind)));
        out.argument("stream", work.stream);
        out.argument("correlation", work.correlation);
        if (work.kind != trace::WorkKind::kernel) {
            out.argument("bytes", work.bytes);
        }
        out.end_event();
        tracks_.end_slice(track, end_ns);
    }

  private:
    struct Row {
        std::uint64_t track = 0;
        std::uint64_t end_ns = 0;
    };

    std::uint64_t free_track(const trace::Work& work, std::uint64_t begin_ns,
                             std::uint64_t end_ns) {
        std::vector<Row>& rows = rows_[{work.device, work.stream}];
        auto free = std::find_if(rows.begin(), rows.end(),
                                 [&](const Row& row) { return row.end_ns <= begin_ns; });
        if (free == rows.end()) {
            const std::uint64_t gpu = tracks_.named("GPU " + std::to_string(work.device) + " work");
            free = rows.insert(
                free, {tracks_.out().add_track(gpu, "stream " + std::to_string(work.stream)), 0});
        }
        free->end_ns = end_ns;
        return free->track;
    }

    const std::string& function(const trace::Work& work, const std::string& mangled) {
        const auto [at, is_new] = functions_.try_emplace(work.name);
        if (is_new) {
            at->second = clean_name(report::without_anonymous(report::demangle(mangled.c_str())));
        }
        return at->second;
    }

    ProcessTracks& tracks_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Row>> rows_;
    std::map<std::uint32_t, std::string> functions_;
};

}  // namespace memlab::report::exports
