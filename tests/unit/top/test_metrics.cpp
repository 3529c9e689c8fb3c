// The metrics' text, and the server that gives it away.
#include <random>

#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"
#include "tools/top/http_server.hpp"
#include "tools/top/metrics.hpp"

namespace memlab::tools {
namespace {

using Catch::Matchers::ContainsSubstring;

History machine_history() {
    History history;
    Observed observed = small_machine();
    observed.facts[4711].container = "0123456789ab";
    observed.statuses[0].status->executable = "/usr/bin/python3";
    observed.statuses[0].status->arguments = {"python3", "/home/user/tr\"ain.py", "--key",
                                              "secret"};
    observed.statuses[0].status->rank = "3";
    observed.statuses[0].status->oom_count = 2;
    MachineSample sample = join(std::move(observed));
    sample.time_ns = 1;
    sample.host = "node1";
    history.add(std::move(sample));
    return history;
}

DetailsOf many_nn_modules() {
    Details details;
    for (int i = 0; i < 100; ++i) {
        details.nn_modules.push_back({"layers." + std::to_string(i) + ".linear", "Linear",
                                      static_cast<std::uint64_t>(i), 1});
    }
    details.nn_modules.push_back({"layers.7.norm", "Norm", 1000, 1});
    return {{4711, details}};
}

std::size_t lines_with(const std::string& text, const std::string& begin) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("\n" + begin, at)) != std::string::npos; ++at) {
        ++count;
    }
    return count;
}

TEST_CASE("metrics name process, rank, container and GPU", "[top]") {
    const std::string text = render_metrics(machine_history(), {}, {});
    const std::string labels =
        "{host=\"node1\",pid=\"4711\",executable=\"python3\",script=\"tr\\\"ain.py\",rank=\"3\","
        "container=\"0123456789ab\"";
    CHECK_THAT(text, ContainsSubstring("memlab_process_reserved_bytes" + labels +
                                       ",gpu=\"0\",uuid=\"GPU-0\"} 20401094656\n"));
    CHECK_THAT(text, ContainsSubstring("memlab_process_out_of_memory_total" + labels + "} 2\n"));
    CHECK_THAT(text, ContainsSubstring("# TYPE memlab_process_out_of_memory counter\n"));
    CHECK_THAT(text, ContainsSubstring("# UNIT memlab_gpu_used_bytes bytes\n"));
    CHECK_THAT(text, ContainsSubstring("memlab=\"no\"} 1\n"));
    CHECK(text.ends_with("# EOF\n"));
    // No argument of anybody's is a label.
    CHECK(text.find("secret") == std::string::npos);
    CHECK(text.find("/home/user") == std::string::npos);
}

TEST_CASE("the older format has the counters' full names", "[top]") {
    MetricsOptions options;
    options.open_metrics = false;
    const std::string text = render_metrics(machine_history(), {}, options);
    CHECK_THAT(text, ContainsSubstring("# TYPE memlab_process_out_of_memory_total counter\n"));
    CHECK(text.find("# UNIT") == std::string::npos);
}

TEST_CASE("nn.Modules are bounded in depth and number", "[top]") {
    MetricsOptions options;
    const std::string name = "memlab_process_nn_module_bytes{";
    const std::string text = render_metrics(machine_history(), many_nn_modules(), options);
    CHECK(lines_with(text, name) == options.most_nn_modules + 1);
    CHECK_THAT(text, ContainsSubstring("nn_module=\"layers.7\"} 1007\n"));
    CHECK_THAT(text, ContainsSubstring("nn_module=\"(others)\"}"));
    options.nn_module_depth = 1;
    CHECK(lines_with(render_metrics(machine_history(), many_nn_modules(), options), name) == 1);
    options.nn_module_depth = 0;
    CHECK(lines_with(render_metrics(machine_history(), many_nn_modules(), options), name) == 0);
    CHECK(nn_module_at_depth("a.b.c", 1) == "a");
    CHECK(nn_module_at_depth("a.b.c", 2) == "a.b");
    CHECK(nn_module_at_depth("a.b.c", 5) == "a.b.c");
    CHECK(nn_module_at_depth("", 2).empty());
}

TEST_CASE("anonymized metrics name no host, GPU or container", "[top]") {
    MetricsOptions options;
    options.anonymize = true;
    const std::string text = render_metrics(machine_history(), {}, options);
    for (const char* secret : {"node1", "\"GPU-0\"", "\"GPU-1\"", "0123456789ab"}) {
        CHECK(text.find(secret) == std::string::npos);
    }
    CHECK_THAT(text, ContainsSubstring("container=\"container-1\""));
    options.arguments = false;
    CHECK(render_metrics(machine_history(), {}, options).find("script=") == std::string::npos);
}

HttpReply found(const HttpRequest& request) {
    return {200, "text/plain", request.path + " " + request.accept};
}

TEST_CASE("the server answers GET and HEAD, and refuses the rest", "[top]") {
    const auto status = [](const std::string& request) {
        return http_answer(request, found).substr(9, 3);
    };
    CHECK(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == "200");
    CHECK(status("HEAD / HTTP/1.0\r\n\r\n") == "200");
    CHECK(status("POST /metrics HTTP/1.1\r\n\r\n") == "405");
    CHECK(status("GET metrics HTTP/1.1\r\n\r\n") == "400");
    CHECK(status("GET /metrics\r\n\r\n") == "400");
    CHECK(status("GET / HTTP/2.0\r\n\r\n") == "400");
    CHECK(status("\r\n\r\n") == "400");
    CHECK(status(std::string("\0\xff\n\n", 4)) == "400");
    const std::string answer =
        http_answer("GET /metrics?a=b HTTP/1.1\nACCEPT:  text/x \n\n", found);
    CHECK_THAT(answer, ContainsSubstring("Content-Length: 15\r\n"));
    CHECK(answer.ends_with("\r\n\r\n/metrics text/x"));
    CHECK(http_answer("HEAD / HTTP/1.1\r\n\r\n", found).ends_with("\r\n\r\n"));
}

TEST_CASE("any request gets one answer of HTTP", "[top]") {
    const std::string whole = "GET /metrics?x HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n";
    std::mt19937 random(11);
    for (int round = 0; round < 20'000; ++round) {
        std::string text = whole.substr(0, random() % (whole.size() + 1));
        for (std::size_t i = random() % 5; i > 0 && !text.empty(); --i) {
            text[random() % text.size()] = static_cast<char>(random());
        }
        const std::string answer = http_answer(text, found);
        CHECK(answer.starts_with("HTTP/1.1 "));
        CHECK(answer.find("\r\n\r\n") != std::string::npos);
    }
}

TEST_CASE("addresses to listen on", "[top]") {
    CHECK(parse_listen_address("9435").host == "127.0.0.1");
    CHECK(parse_listen_address(":9435").host == "127.0.0.1");
    CHECK(parse_listen_address("localhost:9435").host == "127.0.0.1");
    CHECK(parse_listen_address("0.0.0.0:80").host == "0.0.0.0");
    const ListenAddress v6 = parse_listen_address("[::1]:9435");
    CHECK(v6.v6);
    CHECK(v6.host == "::1");
    CHECK(v6.port == 9435);
    for (const char* wrong : {"", "a", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "host:80",
                              "127.0.0.1:-1", "[::1]", "::1:80", "127.0.0.1:80x"}) {
        CHECK_FALSE(parse_listen_address(wrong).problem.empty());
    }
}

}  // namespace
}  // namespace memlab::tools
