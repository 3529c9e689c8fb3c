// The answers to what the control channel is asked: a function for each verb of verbs.inc, called
// by answer_request() (control_channel.hpp) in the channel's thread. None waits for work of the
// GPU's, except yield, as long as it may; none holds a lock while a peer is sent anything.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "interpose/control/control_channel.hpp"

namespace memlab::interpose {

class Session;

using Arguments = std::span<const std::string_view>;

/// How long an answer waits for the recorder's locks, which a thread may hold for good.
inline constexpr std::uint64_t max_wait_for_recorder_ns = 2'000'000'000;

// All may throw std::bad_alloc. The arguments are as many as the verb takes.
void answer_status(Session& session, Answer* answer);
void answer_sites(Session& session, Arguments arguments, Answer* answer);
void answer_nn_modules(Session& session, Arguments arguments, Answer* answer);
void answer_pool(Session& session, Arguments arguments, Answer* answer);
void answer_snapshot(Session& session, Arguments arguments, Answer* answer);
void answer_mark(Session& session, Arguments arguments, Answer* answer);
void answer_record(Session& session, Arguments arguments, Answer* answer);
void answer_stacks(Session& session, Arguments arguments, Answer* answer);
void answer_empty_cache(Session& session, Answer* answer);
void answer_trim(Session& session, Arguments arguments, Answer* answer);
void answer_limit(Session& session, Arguments arguments, Answer* answer);
void answer_hold_on_oom(Arguments arguments, Answer* answer);
void answer_release(Answer* answer);
void answer_yield(Session& session, Arguments arguments, Answer* answer);
void answer_restore(Session& session, Answer* answer);

/// The document of an action that was done.
void answer_done(Verb verb, std::string text, Answer* answer,
                 std::optional<std::uint64_t> bytes = {}, std::optional<std::string> path = {});

/// A whole number, no larger than `most`; none: it is not.
std::optional<std::uint64_t> number_in(std::string_view text, std::uint64_t most);

/// Why a verb that needs a recording has nothing to answer.
inline constexpr const char* no_recording = "nothing is recorded (MEMLAB_RECORD=off)";
inline constexpr const char* recording_is_busy =
    "the recording has ended, or a thread holds its lock";

}  // namespace memlab::interpose
