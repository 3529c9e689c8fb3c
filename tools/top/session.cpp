#include "tools/top/session.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <utility>

#include "tools/top/list_view.hpp"
#include "tools/top/process_view.hpp"
#include "tools/top/terminal.hpp"
#include "tools/top/watcher.hpp"

namespace memlab::tools {
namespace {

/// SIGINT, SIGTERM and SIGHUP as a descriptor, so that the terminal is always left in order.
class EndSignals {
  public:
    EndSignals() {
        sigset_t ends;
        sigemptyset(&ends);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
            sigaddset(&ends, signal);
        }
        sigprocmask(SIG_BLOCK, &ends, &before_);
        descriptor_ = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    }
    ~EndSignals() {
        // What has come is taken: after this it would end the process, by ncurses' handler.
        signalfd_siginfo taken{};
        while (read(descriptor_, &taken, sizeof taken) == sizeof taken) {
        }
        close(descriptor_);
        sigprocmask(SIG_SETMASK, &before_, nullptr);
    }
    EndSignals(const EndSignals&) = delete;
    EndSignals& operator=(const EndSignals&) = delete;
    int descriptor() const { return descriptor_; }

  private:
    sigset_t before_{};
    int descriptor_ = -1;
};

class Session {
  public:
    Session(const SessionOptions& options, Terminal& terminal)
        : options_(options),
          terminal_(terminal),
          watcher_(options.interval),
          state_(options.view) {}

    void run() {
        const EndSignals signals;
        show();
        for (;;) {
            std::array<pollfd, 3> files{{{STDIN_FILENO, POLLIN, 0},
                                         {watcher_.descriptor(), POLLIN, 0},
                                         {signals.descriptor(), POLLIN, 0}}};
            // A change of the window's size interrupts it.
            const int ready = poll(files.data(), files.size(), 1000);
            if (files[2].revents != 0 || (files[0].revents & (POLLHUP | POLLERR)) != 0) {
                return;
            }
            if (ready > 0 && files[1].revents != 0) {
                take_news();
            }
            if (!take_keys()) {
                return;
            }
            show();
        }
    }

  private:
    void take_news() {
        received_.take(watcher_);
        if (auto message = watcher_.take_message()) {
            state_.message = std::move(*message);
        }
    }

    bool can_ask() const {
        const ProcessSample* const process = received_.history().latest().find(state_.chosen);
        return process != nullptr && process->status.has_value();
    }

    /// False: it is over.
    bool take_keys() {
        while (const auto key = terminal_.next_key()) {
            std::vector<pid_t> shown;
            for (const Row& row : rows_of(seen(), state_, options_.arguments)) {
                shown.push_back(row.pid);
            }
            const bool was_paused = state_.paused;
            const KeyCommand command = press(state_, *key, shown, can_ask(), terminal_.rows());
            if (state_.paused && !was_paused) {
                paused_ = received_.history();
            }
            if (command.what == KeyCommand::What::quit) {
                return false;
            }
            if (command.what != KeyCommand::What::none) {
                state_.message = "asking process " + std::to_string(command.pid) + "...";
                watcher_.request(command);
            }
        }
        return true;
    }

    /// What is shown: while paused, what was there then.
    const History& seen() const { return state_.paused ? paused_ : received_.history(); }

    void show() {
        const Screen screen{terminal_.rows(), terminal_.columns(), options_.ascii,
                            options_.arguments};
        if (received_.history().empty()) {
            std::vector<Line> lines(screen.rows);
            lines[0] = Line("memlab-top: looking for processes...", Tint::dim);
            terminal_.show(lines);
            return;
        }
        if (state_.help) {
            terminal_.show(help_screen(screen));
        } else if (state_.looks_into) {
            terminal_.show(process_screen(seen(), state_, details_of_chosen(), screen));
        } else {
            terminal_.show(list_screen(seen(), rows_of(seen(), state_, options_.arguments), state_,
                                       received_.details(), screen));
        }
        Interest interest;
        interest.pid = state_.chosen;
        interest.since_mark = state_.since_mark;
        interest.pool = state_.looks_into && state_.page == ProcessPage::map;
        watcher_.set_interest(interest);
    }

    const Details& details_of_chosen() const {
        static const Details none = [] {
            Details details;
            details.problem = "asking...";
            return details;
        }();
        const auto found = received_.details().find(state_.chosen);
        return found == received_.details().end() ? none : found->second;
    }

    const SessionOptions& options_;
    Terminal& terminal_;
    Watcher watcher_;
    ViewState state_;
    Received received_;
    History paused_;
};

}  // namespace

std::string run_session(const SessionOptions& options) {
    Terminal terminal(options.color);
    if (!terminal.problem().empty()) {
        return terminal.problem();
    }
    Session(options, terminal).run();
    return {};
}

}  // namespace memlab::tools
