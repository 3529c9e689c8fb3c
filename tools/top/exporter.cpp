#include "tools/top/exporter.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "report/text/terminal.hpp"
#include "tools/diagnostics.hpp"
#include "tools/top/http_server.hpp"
#include "tools/top/watcher.hpp"

namespace memlab::tools {
namespace {

constexpr int exit_cannot_listen = 2;

class Exporter {
  public:
    explicit Exporter(const ExporterOptions& options)
        : options_(options), watcher_(options.interval) {
        Interest interest;
        interest.all = true;
        interest.sites = 100;
        watcher_.set_interest(interest);
    }

    int event() const { return watcher_.descriptor(); }

    void take_sample() { received_.take(watcher_); }

    HttpReply answer(const HttpRequest& request) const {
        HttpReply reply;
        if (request.path == "/") {
            reply.body = "memlab-top: the metrics are at /metrics\n";
        } else if (request.path != "/metrics") {
            reply.status = 404;
            reply.body = "there is /metrics alone\n";
        } else if (received_.history().empty()) {
            reply.status = 503;
            reply.body = "the first sample is being taken\n";
        } else {
            MetricsOptions metrics = options_.metrics;
            metrics.open_metrics =
                request.accept.find("application/openmetrics-text") != std::string::npos;
            reply.type = metrics.open_metrics
                             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                             : "text/plain; version=0.0.4; charset=utf-8";
            reply.body = render_metrics(received_.history(), received_.details(), metrics);
        }
        return reply;
    }

  private:
    const ExporterOptions& options_;
    Watcher watcher_;
    Received received_;
};

}  // namespace

int run_exporter(const ExporterOptions& options) {
    const ListenAddress address = parse_listen_address(options.address);
    if (!address.problem.empty()) {
        print_diagnostic(report::printable(address.problem, false));
        return exit_cannot_listen;
    }
    HttpServer server(address);
    const std::string place =
        (address.v6 ? "[" + address.host + "]" : address.host) + ":" +
        std::to_string(server.problem().empty() ? server.port() : address.port);
    if (!server.problem().empty()) {
        print_diagnostic("cannot listen on " + place + " (" + server.problem() +
                         "); give another with --listen");
        return exit_cannot_listen;
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    const int stop = signalfd(-1, &ends, SFD_CLOEXEC);
    Exporter exporter(options);
    print_diagnostic("metrics at http://" + place + "/metrics");
    server.run([&exporter](const HttpRequest& request) { return exporter.answer(request); }, stop,
               exporter.event(), [&exporter] { exporter.take_sample(); });
    close(stop);
    return 0;
}

}  // namespace memlab::tools
