// The control channel of a recorded process: what its socket is called, and what is said on it.
//
// A stream socket of the process's user. A request is one line, a verb of verbs.inc and its
// arguments, separated by tabs and ended by a newline, of at most max_request_bytes. The reply is
// "ok N\n" and N bytes of one JSON document, or "error TEXT\n". A connection takes several
// requests, one after another.
//
// The socket is in a folder of the user's, and in the abstract namespace as well: logind removes
// $XDG_RUNTIME_DIR at the last logout, and cron, sudo and containers do not have it. Names are
// those of the process's own pid namespace. Whoever connects checks by SO_PEERCRED who listens:
// anybody may take a name.
//
// The library and the tools include this file: it needs nothing of either.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace memlab::interpose {

inline constexpr std::size_t max_request_bytes = 4096;  ///< with the newline
inline constexpr std::size_t max_request_arguments = 8;
inline constexpr std::size_t max_error_bytes = 1024;  ///< "error TEXT\n"
/// Of a document; the client refuses to read more.
inline constexpr std::size_t max_reply_bytes = std::size_t{64} << 20;
inline constexpr std::size_t max_live_clients = 16;
inline constexpr std::uint64_t idle_client_ns = 60'000'000'000;
inline constexpr std::uint64_t slow_client_ns = 5'000'000'000;

inline constexpr std::string_view ok_word = "ok ";
inline constexpr std::string_view error_word = "error ";

enum class Verb : std::uint8_t {
#define VERB(id, name, arguments, meaning) id,
#include "interpose/control/verbs.inc"
#undef VERB
};

struct VerbDef {
    std::string_view name;
    std::string_view arguments;  ///< "[N] [since-mark]"
    std::string_view meaning;
};

inline constexpr VerbDef verbs[] = {
#define VERB(id, name, arguments, meaning) {name, arguments, meaning},
#include "interpose/control/verbs.inc"
#undef VERB
};

constexpr const VerbDef& info(Verb verb) {
    return verbs[static_cast<std::size_t>(verb)];
}

/// How many arguments a verb takes, by its description.
struct ArgumentCount {
    std::size_t least = 0;
    std::size_t most = 0;
};

constexpr ArgumentCount argument_count(std::string_view arguments) {
    ArgumentCount count;
    bool inside = false;
    for (const char c : arguments) {
        if (c != ' ' && !inside) {
            ++count.most;
            count.least += c == '[' ? 0 : 1;
        }
        inside = c != ' ';
    }
    return count;
}

/// Null: there is none of this name.
inline const VerbDef* find_verb(std::string_view name) {
    const auto* const found =
        std::find_if(std::begin(verbs), std::end(verbs),
                     [name](const VerbDef& verb) { return verb.name == name; });
    return found == std::end(verbs) ? nullptr : found;
}

/// Why a verb does not take so many arguments; empty: it does. May throw std::bad_alloc.
inline std::string argument_problem(const VerbDef& verb, std::size_t count) {
    const ArgumentCount takes = argument_count(verb.arguments);
    if (count >= takes.least && count <= takes.most) {
        return {};
    }
    return std::string(verb.name)
        .append(takes.most == 0 ? " takes no arguments" : " takes ")
        .append(verb.arguments);
}

/// A request; the texts are parts of the line.
struct Request {
    Verb verb = Verb::status;
    std::array<std::string_view, max_request_arguments> words = {};
    std::size_t count = 0;

    std::span<const std::string_view> arguments() const { return {words.data(), count}; }
};

/// Parses a line without its newline. Returns why it is none, empty if it is; nothing of the line
/// is in that. May throw std::bad_alloc.
inline std::string parse_request(std::string_view line, Request* request) {
    if (line.size() >= max_request_bytes) {
        return "a request has at most 4096 bytes";
    }
    if (line.find('\0') != std::string_view::npos) {
        return "a request has no null bytes";
    }
    std::size_t end = std::min(line.find('\t'), line.size());
    const std::string_view name = line.substr(0, end);
    const VerbDef* const found = find_verb(name);
    if (found == nullptr) {
        return "no such verb; this memlab knows status, sites and others: memlab-ctl --help";
    }
    *request = {};
    request->verb = static_cast<Verb>(found - std::begin(verbs));
    while (end < line.size()) {
        const std::size_t begin = end + 1;
        end = std::min(line.find('\t', begin), line.size());
        if (request->count == max_request_arguments) {
            return "too many arguments";
        }
        request->words[request->count++] = line.substr(begin, end - begin);
    }
    return argument_problem(*found, request->count);
}

/// The line of a request, with its newline. Tabs and newlines in arguments become blanks.
inline std::string request_line(Verb verb, std::span<const std::string> arguments) {
    std::string line(info(verb).name);
    for (const std::string& argument : arguments) {
        line += '\t';
        std::transform(argument.begin(), argument.end(), std::back_inserter(line),
                       [](char c) { return c == '\t' || c == '\n' || c == '\0' ? ' ' : c; });
    }
    return line + '\n';
}

/// What a reply begins with, read in pieces as they come. Thread-safety: none.
class ReplyHead {
  public:
    enum class State : std::uint8_t {
        incomplete,
        document,  ///< document_bytes() follow
        error,     ///< text() says what
        invalid,   ///< not of this protocol
    };

    /// Takes what it needs of the bytes, and returns how many that are.
    std::size_t take(std::string_view bytes) {
        std::size_t taken = 0;
        while (state_ == State::incomplete && taken < bytes.size()) {
            const char c = bytes[taken++];
            if (c == '\n') {
                end_line();
            } else if (line_.size() + 1 >= max_error_bytes) {
                state_ = State::invalid;
            } else {
                line_ += c;
            }
        }
        return taken;
    }

    State state() const { return state_; }
    std::size_t document_bytes() const { return bytes_; }
    const std::string& text() const { return line_; }

  private:
    void end_line() {
        const std::string_view line = line_;
        if (line.starts_with(error_word)) {
            state_ = State::error;
            line_.erase(0, error_word.size());
            return;
        }
        state_ = State::invalid;
        if (line.starts_with(ok_word)) {
            const std::string_view digits = line.substr(ok_word.size());
            const auto [end, problem] =
                std::from_chars(digits.data(), digits.data() + digits.size(), bytes_);
            if (problem == std::errc() && end == digits.data() + digits.size() &&
                bytes_ <= max_reply_bytes) {
                state_ = State::document;
            }
        }
    }

    State state_ = State::incomplete;
    std::string line_;
    std::size_t bytes_ = 0;
};

/// "memlab-UID-PID".
inline std::string abstract_socket_name(uid_t user, pid_t process) {
    return "memlab-" + std::to_string(user) + "-" + std::to_string(process);
}

/// The folder of the sockets: by the value of XDG_RUNTIME_DIR (null: not set), else in /tmp.
inline std::string socket_folder(const char* runtime_folder, uid_t user) {
    return runtime_folder != nullptr && runtime_folder[0] == '/'
               ? std::string(runtime_folder) + "/memlab"
               : "/tmp/memlab-" + std::to_string(user);
}

/// "PID.sock".
inline std::string socket_file_name(pid_t process) {
    return std::to_string(process) + ".sock";
}

/// An address of a stream socket. Thread-safety: none.
class LiveAddress {
  public:
    static LiveAddress abstract(std::string_view name) { return {name, true}; }
    static LiveAddress at(std::string_view path) { return {path, false}; }

    /// False: the name is too long for an address.
    bool fits() const { return size_ != 0; }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
    socklen_t size() const { return size_; }

  private:
    LiveAddress(std::string_view name, bool is_abstract) {
        const std::size_t before = is_abstract ? 1 : 0;
        if (name.empty() || name.size() + 1 > sizeof address_.sun_path) {
            return;
        }
        address_.sun_family = AF_UNIX;
        std::memcpy(address_.sun_path + before, name.data(), name.size());
        size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
    }

    sockaddr_un address_{};
    socklen_t size_ = 0;
};

}  // namespace memlab::interpose
