// The slices, marks and failures of a log, for a trace.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/device_label.hpp"
#include "report/exports/lifetime_sink.hpp"
#include "report/exports/perfetto_tracks.hpp"
#include "report/exports/site_choice.hpp"
#include "report/exports/stacks.hpp"
#include "report/summary/place_text.hpp"

namespace memlab::report::exports {

/// Thread-safety: none. What it is made of must outlive it.
class Slices : public LifetimeSink {
  public:
    Slices(const Input& input, ProcessTracks& tracks)
        : LifetimeSink(input.stretch),
          input_(input),
          choice_(input),
          tracks_(tracks),
          out_(tracks.out()),
          work_(tracks),
          stacks_(input.recording.report, input.resolver, frames_) {}

    /// Ends the open slices at the end of the stretch.
    void close() {
        for_each_live([this](const Allocation& allocation) { freed(allocation, nullptr); });
        end_freed();
        for (auto& [owner, open] : open_) {
            while (!open.names.empty()) {
                end_scope(open);
            }
        }
    }

  protected:
    void entered() override {
        for_each_live([this](const Allocation& allocation) {
            if (!allocation.pending) {
                allocated(allocation);
            }
        });
        for (auto& [owner, open] : open_) {
            for (const std::string& name : open.names) {
                begin_scope(owner, open, name);
            }
        }
    }

    void allocated(const Allocation& allocation) override {
        const trace::Event& event = allocation.event;
        if (!within() || !choice_.takes(event, string(event.api))) {
            return;
        }
        end_freed();
        Place& place = place_of(event);
        const std::uint64_t track = place.lanes.take(out_);
        slices_.emplace(allocation.number, std::pair(track, &place));
        tracks_.begin(TracePackets::Type::slice_begin, track, now());
        out_.category("allocation");
        out_.name(place.name);
        if (place.callstack != 0) {
            out_.callstack(place.callstack, allocation.size);
        }
        out_.argument("bytes", allocation.size);
        out_.argument("requested_bytes", event.requested);
        out_.argument("device", event.device);
        out_.argument("kind", trace::name_of(event.kind));
        out_.address_argument("address", event.address);
        out_.argument("api", place.api);
        out_.argument("thread", thread_text(event.thread));
        if (event.time_ns < stretch().from_ns) {
            out_.argument("allocated_ns", event.time_ns);  // before what is shown begins
        }
        out_.end_event();
    }
    void freed(const Allocation& allocation, const trace::Event* /*by*/) override {
        if (const auto slice = slices_.find(allocation.number); slice != slices_.end()) {
            ending_.push_back(slice->second);
            slices_.erase(slice);
        }
    }
    void completed(const Allocation& /*allocation*/, const trace::Event* /*by*/) override {}

    /// Ends the slices of what was freed. Not at once, so that the counters that fall with it
    /// travel with it.
    void end_freed() {
        for (const auto& [track, place] : ending_) {
            tracks_.end_slice(track, now());
            place->lanes.give_back(track);
        }
        ending_.clear();
    }
    void interrupted() override { end_freed(); }

    void noted(const trace::Event& event) override {
        if (event.type == trace::EventType::mark) {
            if (within()) {
                tracks_.mark(clean_name(string(event.name)), now());
            }
            return;
        }
        if (event.stream == trace::ended_with_thread && event.type == trace::EventType::scope_end) {
            end_scopes_of(event.thread);
            return;
        }
        const bool range = event.address != 0;
        const Owner owner{range ? 0 : event.thread, event.requested, event.address};
        if (event.type == trace::EventType::scope_begin) {
            Scopes& open = open_[owner];
            open.names.push_back(clean_name(string(event.name)));
            if (within()) {
                begin_scope(owner, open, open.names.back());
            }
        } else if (const auto at = open_.find(owner); at != open_.end()) {
            end_scope(at->second);
            if (at->second.names.empty()) {
                open_.erase(at);
            }
        }
    }

    void failed(const trace::OomEvent& oom) override {
        if (within() && input_.wants(oom.device)) {
            tracks_.failure(oom.device, oom.requested, clean_name(string(oom.api)), now(),
                            oom.thread);
        }
    }

    void worked(const trace::Work& work) override {
        if (input_.wants(work.device)) {
            work_.add(work, string(work.name), stretch());
        }
    }

  private:
    /// Of allocations by one function and call stack on one device.
    struct Place {
        std::string name;
        std::string api;
        std::uint64_t callstack = 0;  ///< 0: there is none
        Lanes lanes;
    };
    /// A thread's scopes of a domain, or a range of the process.
    using Owner = std::array<std::uint64_t, 3>;  ///< thread, domain, range
    struct Scopes {
        std::vector<std::string> names;     ///< open ones, the innermost last
        std::vector<std::uint64_t> tracks;  ///< of those that are slices of the trace
        Lanes* lanes = nullptr;             ///< of a range: where its track belongs
    };

    Place& place_of(const trace::Event& event) {
        const auto [at, is_new] = places_.try_emplace({event.device, event.stack, event.api});
        Place& place = at->second;
        if (is_new) {
            place.api = clean_name(string(event.api));
            place.name = place_name(event);
            const std::uint64_t group =
                tracks_.named(clean_name(report::label_of(input_.recording.report, event.device)) +
                              " allocations");
            place.lanes = Lanes(group, place.name);
            place.callstack = callstack_of(event.stack, place.api);
        }
        return place;
    }

    std::string place_name(const trace::Event& event) {
        const report::Place& place = input_.resolver.place(event.stack);
        std::string name = report::without_anonymous(place.function);
        if (place.recorded) {
            const std::string where = report::location_text(place, "");
            name += name.empty() ? where : " (" + where + ")";
        }
        return std::string(shown(clean_name(name.empty() ? string(event.api) : name)));
    }

    /// From the outermost function to the one that CUDA has.
    std::uint64_t callstack_of(std::uint32_t stack, const std::string& api) {
        if (stack == 0 || stack >= input_.recording.report.stacks.size()) {
            return 0;
        }
        std::vector<std::uint32_t> numbers;
        stacks_.append(stack, numbers);
        std::vector<TracePackets::Frame> frames;
        frames.reserve(numbers.size() + 1);
        for (const std::uint32_t number : numbers) {
            const NamedFrame& frame = frames_[number];
            frames.push_back({frame.function, frame.file, frame.line});
        }
        if (!api.empty()) {
            frames.push_back({.function = api, .file = {}});
        }
        return frames.empty() ? 0 : out_.add_callstack(frames);
    }

    const std::string& thread_text(std::uint32_t thread) {
        const auto [at, is_new] = threads_.try_emplace(thread);
        if (is_new) {
            at->second = clean_name(report::thread_text(input_.recording.report, thread));
        }
        return at->second;
    }

    void begin_scope(const Owner& owner, Scopes& open, const std::string& name) {
        const auto& [thread, domain, range] = owner;
        std::uint64_t track = 0;
        if (range == 0) {
            track = tracks_.scopes_of(thread, domain);
        } else {
            open.lanes = &ranges_.try_emplace(name, tracks_.process(), name).first->second;
            track = open.lanes->take(out_);
        }
        open.tracks.push_back(track);
        tracks_.begin(TracePackets::Type::slice_begin, track, now());
        out_.category("scope");
        out_.name(shown(name));
        out_.end_event();
    }

    void end_scope(Scopes& open) {
        open.names.pop_back();
        if (!open.tracks.empty()) {
            const std::uint64_t track = open.tracks.back();
            open.tracks.pop_back();
            tracks_.end_slice(track, now());
            if (open.lanes != nullptr) {
                open.lanes->give_back(track);
            }
        }
    }

    void end_scopes_of(std::uint32_t thread) {
        for (auto at = open_.lower_bound({thread, 0, 0});
             at != open_.end() && at->first[0] == thread;) {
            if (at->first[2] != 0) {
                ++at;
                continue;
            }
            while (!at->second.names.empty()) {
                end_scope(at->second);
            }
            at = open_.erase(at);
        }
    }

    const Input& input_;
    SiteChoice choice_;
    ProcessTracks& tracks_;
    TracePackets& out_;
    WorkTracks work_;
    FrameTable frames_;
    StackFrames stacks_;
    std::map<std::array<std::uint32_t, 3>, Place> places_;  ///< by device, stack and API
    using Slice = std::pair<std::uint64_t, Place*>;         ///< its track
    std::unordered_map<std::uint64_t, Slice> slices_;       ///< by number of the allocation
    std::vector<Slice> ending_;
    std::unordered_map<std::uint32_t, std::string> threads_;
    std::map<std::string, Lanes> ranges_;  ///< by name
    std::map<Owner, Scopes> open_;
};

}  // namespace memlab::report::exports
