#include "tools/follow/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "report/text/terminal.hpp"

namespace memlab::tools {

namespace {

constexpr char escape = '\x1b';
constexpr std::string_view enter_screen = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr std::string_view leave_screen = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view end_colors = "\x1b[0m";

void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            return;
        }
        text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
}

/// The length of the escape sequence at the start; 0: there is none.
std::size_t sequence_length(std::string_view text) {
    if (text.size() < 2 || text[0] != escape || text[1] != '[') {
        return 0;
    }
    std::size_t at = 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) {
        ++at;
    }
    return std::min(at + 1, text.size());
}

bool continues_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80;
}

}  // namespace

std::string cut_to_columns(std::string_view line, std::size_t columns) {
    std::string out;
    bool colored = false;
    for (std::size_t at = 0; at < line.size();) {
        if (const std::size_t length = sequence_length(line.substr(at)); length != 0) {
            out += line.substr(at, length);
            colored = true;
            at += length;
            continue;
        }
        if (columns == 0) {
            break;
        }
        --columns;
        do {
            out += line[at++];
        } while (at < line.size() && continues_character(line[at]));
    }
    return colored ? out.append(end_colors) : out;
}

bool FollowScreen::is_possible() {
    const char* const type = std::getenv("TERM");
    return isatty(STDOUT_FILENO) != 0 && type != nullptr && type[0] != '\0' &&
           std::string_view(type) != "dumb";
}

FollowScreen::FollowScreen(bool ascii) : ascii_(ascii) {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) {
        sigaddset(&taken, signal);
    }
    sigprocmask(SIG_BLOCK, &taken, &mask_before_);
    signals_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    enter();
}

void FollowScreen::enter() {
    has_keys_ = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
        termios keys = before_;
        keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        keys.c_cc[VMIN] = 0;
        keys.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    }
    measure();
    write_all(enter_screen);
}

void FollowScreen::leave() {
    write_all(leave_screen);
    if (has_keys_) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    }
}

FollowScreen::~FollowScreen() {
    leave();
    // What has come is taken: after this it would end the process.
    signalfd_siginfo taken{};
    while (read(signals_, &taken, sizeof taken) == sizeof taken) {
    }
    close(signals_);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void FollowScreen::measure() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0) {
        rows_ = std::max<std::size_t>(size.ws_row, 2);
        columns_ = size.ws_col;
    }
}

void FollowScreen::show(std::string_view text, const std::string& bottom) {
    lines_.clear();
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines_.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    bottom_ = bottom;
    scroll(0);
    draw();
}

void FollowScreen::scroll(long lines) {
    const std::size_t shown = rows_ - 1;
    const std::size_t last = lines_.size() > shown ? lines_.size() - shown : 0;
    const long wanted = static_cast<long>(first_) + lines;
    first_ = std::min(static_cast<std::size_t>(std::max(wanted, 0L)), last);
}

/// In one write, each line over the old one: nothing flickers.
void FollowScreen::draw() {
    std::string out = "\x1b[H";
    const std::size_t shown = rows_ - 1;
    for (std::size_t row = 0; row < shown; ++row) {
        if (first_ + row < lines_.size()) {
            out += cut_to_columns(lines_[first_ + row], columns_);
        }
        out += "\x1b[K\r\n";
    }
    std::string bottom = bottom_;
    if (lines_.size() > shown) {
        bottom += (ascii_ ? ", lines " : " · lines ") + std::to_string(first_ + 1) + " to " +
                  std::to_string(std::min(first_ + shown, lines_.size())) + " of " +
                  std::to_string(lines_.size());
    }
    out += "\x1b[7m" + cut_to_columns(bottom, columns_) + std::string(end_colors) + "\x1b[K";
    write_all(out);
}

FollowScreen::Event FollowScreen::wait(Clock::time_point until) {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
        std::array<pollfd, 3> files{{{signals_, POLLIN, 0},
                                     {STDOUT_FILENO, 0, 0},
                                     {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
        const int ready =
            poll(files.data(), files.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
        if (ready == 0) {
            return Event::time;
        }
        constexpr int gone = POLLERR | POLLHUP;
        if (ready > 0 && ((files[1].revents | files[2].revents) & gone) != 0) {
            return Event::ended;
        }
        signalfd_siginfo signal{};
        if (read(signals_, &signal, sizeof signal) == sizeof signal) {
            if (signal.ssi_signo == SIGTSTP) {  // Ctrl-Z: the shell has its terminal until fg
                leave();
                kill(getpid(), SIGSTOP);
                enter();
            } else if (signal.ssi_signo != SIGWINCH) {
                return Event::ended;
            }
            measure();
            return Event::size;
        }
        if (files[2].revents != 0 && !take_keys()) {
            return Event::ended;
        }
    }
}

/// False: it is over.
bool FollowScreen::take_keys() {
    std::array<char, 64> read_now{};
    const ssize_t got = read(STDIN_FILENO, read_now.data(), read_now.size());
    if (got <= 0) {
        return got < 0 && errno == EINTR;
    }
    keys_.append(read_now.data(), static_cast<std::size_t>(got));
    const long page = static_cast<long>(rows_) - 2;
    const long all = static_cast<long>(lines_.size());
    const std::array<std::pair<std::string_view, long>, 16> moves = {{{"\x1b[A", -1},
                                                                      {"\x1bOA", -1},
                                                                      {"k", -1},
                                                                      {"\x1b[B", 1},
                                                                      {"\x1bOB", 1},
                                                                      {"j", 1},
                                                                      {"\x1b[5~", -page},
                                                                      {"b", -page},
                                                                      {"\x1b[6~", page},
                                                                      {" ", page},
                                                                      {"\x1b[H", -all},
                                                                      {"\x1bOH", -all},
                                                                      {"g", -all},
                                                                      {"\x1b[F", all},
                                                                      {"\x1bOF", all},
                                                                      {"G", all}}};
    while (!keys_.empty()) {
        if (keys_[0] == 'q' || keys_[0] == 'Q' || keys_[0] == '\x03') {
            return false;
        }
        const auto known = std::find_if(moves.begin(), moves.end(), [this](const auto& move) {
            return keys_.starts_with(move.first);
        });
        if (known != moves.end()) {
            scroll(known->second);
            keys_.erase(0, known->first.size());
        } else if (keys_[0] == escape && keys_.size() < 3) {
            break;  // the rest may follow
        } else {
            keys_.erase(0, std::max<std::size_t>(sequence_length(keys_), 1));
        }
    }
    draw();
    return true;
}

}  // namespace memlab::tools
