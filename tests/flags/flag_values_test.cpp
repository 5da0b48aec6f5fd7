// Values of flags at the limits of their range, and the exact messages for values outside it.
#include "common/app/flag_values.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "common/app/configuration.h"
#include "common/base/json.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

TEST(FlagValues, WholeNumbersAreTakenFromTheLeastToTheMost) {
  EXPECT_EQ(parse_integer("--n", "-2", -2, 7), -2);
  EXPECT_EQ(parse_integer("--n", "7", -2, 7), 7);
  for (const char* wrong : {"-3", "8", "", " 1", "1 ", "+1", "1.0", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(refusal([&] { parse_integer("--n", wrong, -2, 7); }),
              concat("--n: expected a whole number from -2 to 7, not '", wrong, "'"));
  }
}

TEST(FlagValues, WholeNumbersMayHaveAPowerOfTen) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::pair<const char*, std::int64_t> right[] = {
      {"1e4", 10'000},
      {"1E4", 10'000},
      {"2e+3", 2000},
      {"1.5e3", 1500},
      {"1.50e2", 150},
      {"-3e1", -30},
      {"0e5", 0},
      {"7e0", 7},
      {"9.2e18", kMost / 1'000'000'000'000'000'000 * 1'000'000'000'000'000'000 + 200'000'000'000'000'000},
      {".5e1", 5},
      {"1.e1", 10}};
  for (const auto& [text, value] : right) {
    EXPECT_EQ(parse_integer("--n", text, -kMost, kMost), value) << text;
  }
  for (const char* wrong : {"1.5",
                            "1.0",
                            "1.25e1",
                            "1e-1",
                            "10e-1",
                            "e4",
                            "1e",
                            "1e+",
                            "1e+-1",
                            "1e++1",
                            "1e4 ",
                            " 1e4",
                            "1e4.0",
                            "+1e4",
                            "1e19",
                            "9.3e18",
                            "1e999999999999",
                            "0e999999999999999999999",
                            "--1e2",
                            "1..5e3",
                            "1_000",
                            "1,000",
                            ".e1",
                            "1e1e1"}) {
    EXPECT_EQ(refusal([&] { parse_integer("--n", wrong, -kMost, kMost); }),
              concat("--n: expected a whole number from ", -kMost, " to ", kMost, ", not '", wrong, "'"));
  }
}

TEST(FlagValues, NumbersAreTakenByTheirRule) {
  EXPECT_EQ(parse_real("--x", "0.5", kPositive), 0.5);
  EXPECT_EQ(parse_real("--x", "0", kNotNegative), 0);
  EXPECT_EQ(parse_real("--x", "7", kNotNegative), 7);
  EXPECT_EQ(parse_real("--x", "0", kBelowOne), 0);
  EXPECT_EQ(parse_real("--x", "0.99", kBelowOne), 0.99);
  const auto refused = [](const char* text, RealRule rule) {
    return refusal([&] { parse_real("--x", text, rule); });
  };
  EXPECT_EQ(refused("0", kPositive), "--x: expected a number above 0, not '0'");
  EXPECT_EQ(refused("-1", kNotNegative), "--x: expected a number of at least 0, not '-1'");
  for (const char* wrong : {"1", "-0.5", "", "1e", "0.5x", " 0.5", "nan"}) {
    EXPECT_EQ(refused(wrong, kBelowOne),
              concat("--x: expected a number from 0 to below 1, not '", wrong, "'"));
  }
}

TEST(FlagValues, NumbersAreThoseThatF32Holds) {
  EXPECT_EQ(parse_real("--x", "3.4e38", kPositive), 3.4e38);
  EXPECT_EQ(parse_real("--x", "1.2e-38", kPositive), 1.2e-38);
  EXPECT_EQ(parse_real("--x", "1.1754943508222875e-38", kPositive), std::numeric_limits<float>::min());
  for (const char* wrong : {"3.5e38", "1.1e-38", "inf", "1e999", "1e-999"}) {
    EXPECT_EQ(refusal([&] { parse_real("--x", wrong, kPositive); }),
              concat("--x: expected a number above 0 that f32 can hold (1.17549e-38 to 3.40282e+38), not '",
                     wrong, "'"));
  }
}

TEST(FlagValues, TextsAreNotEmptyOrOneOfSome) {
  EXPECT_EQ(not_empty("--t", "a"), "a");
  EXPECT_EQ(refusal([] { not_empty("--t", ""); }), "--t: expected a value, not an empty text");
  EXPECT_EQ(one_of("--t", "relu", {"gelu", "relu"}), "relu");
  EXPECT_EQ(refusal([] {
              one_of("--t", "rel", {"gelu", "relu"});
            }),
            "--t: expected one of gelu, relu, not 'rel', did you mean relu?");
  EXPECT_EQ(refusal([] { one_of("--t", "sigmoid", {"gelu"}); }), "--t: expected one of gelu, not 'sigmoid'");
  EXPECT_EQ(joined({}), "");
}

TEST(FlagValues, ThatAreGoneAreRefusedWithWhatTakesTheirPlace) {
  EXPECT_EQ(refusal([] {
              one_of("--comm", "zero2", {"zero1", "zero1-overlapped"});
            }),
            "--comm: zero2 was removed; use zero1-overlapped");
  EXPECT_EQ(refusal([] {
              one_of("--comm-algorithm", "hierarchical", {"ring", "mpi"});
            }),
            "--comm-algorithm: hierarchical was removed; use mpi");
  EXPECT_EQ(refusal([] { refuse_removed_flag("--keep-context"); }),
            "--keep-context was removed: a text goes on where its whole beginning is the --prompt");
}

TEST(FlagValues, OfAConfigurationAreTakenAsTexts) {
  EXPECT_EQ(config_text("--t", "a", true, "a text"), "a");
  EXPECT_EQ(config_text("--t", 0.5, true, "a number"), "0.5");
  EXPECT_EQ(config_text("--t", parse_json("1e4"), true, "a whole number"), "10000");
  EXPECT_EQ(refusal([] { config_text("--t", 7, false, "a text"); }), "--t: expected a text, not 7");
  EXPECT_EQ(refusal([] { config_text("--t", std::string(100, 'a'), false, "a number"); }),
            "--t: expected a number, not \"" + std::string(59, 'a'));
}

// A name is suggested if its edit distance is at most 2, or at most a third of the length of the given text.
TEST(Suggestions, AreNamesThatDifferLittle) {
  const auto suggested = [](const char* given) {
    return suggestion(given, {"--steps", "--seed", "--threads"});
  };
  EXPECT_EQ(suggested("--steps"), ", did you mean --steps?");
  EXPECT_EQ(suggested("--thread"), ", did you mean --threads?");
  EXPECT_EQ(suggested("--stepss"), ", did you mean --steps?");
  EXPECT_EQ(suggested("--stapz"), ", did you mean --steps?");
  EXPECT_EQ(suggested("xx--steps"), ", did you mean --steps?");        // 2 of 9
  EXPECT_EQ(suggested("xxx--steps"), ", did you mean --steps?");       // 3 of 10
  EXPECT_EQ(suggested("xxxx--steps"), "");                             // 4 of 11
  EXPECT_EQ(suggested("xxxx--threads"), ", did you mean --threads?");  // 4 of 13
  EXPECT_EQ(suggested("--sxyz"), "");                                  // 3 of 6
  EXPECT_EQ(suggested(""), "");
  EXPECT_EQ(suggestion("a", {}), "");
  EXPECT_EQ(suggestion("xy", {"ab"}), ", did you mean ab?");
  EXPECT_EQ(suggestion("xyz", {"abc"}), "");
}

// A flag of another well-known program is mapped to the corresponding flag, if the program has it.
TEST(Suggestions, KnowFlagsOfOtherPrograms) {
  EXPECT_EQ(suggestion("--lr", {"--min-lr", "--learning-rate"}), ", did you mean --learning-rate?");
  EXPECT_EQ(suggestion("--epochs", {"--eps", "--steps"}), ", did you mean --steps?");
  EXPECT_EQ(suggestion("--epochs", {"--seed"}), "");
}

TEST(StrictJson, RefusesKeysThatAreThereTwiceAndDeepNesting) {
  EXPECT_EQ(refusal([] { parse_json(R"([{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]}])"); }), "");
  EXPECT_EQ(refusal([] { parse_json(R"({"b": [], "a": {"b": 1}, "b": 2})"); }), "the key 'b' occurs twice");
  // Whatever value comes before.
  for (const std::string value : {"null", "true", "-1", "1", "0.5", "1e-5", "\"text\"", "[]", "{}"}) {
    EXPECT_EQ(refusal([&] { parse_json("{\"a\": " + value + R"(, "b": 1, "b": 2})"); }),
              "the key 'b' occurs twice")
        << value;
  }
  const std::string key(61, 'k');
  EXPECT_EQ(refusal([&] { parse_json("{\"" + key + "\": 1, \"" + key + "\": 2}"); }),
            "the key '" + key.substr(0, 60) + "' occurs twice");
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal([&] { parse_json(nested(64)); }), "");
  EXPECT_EQ(refusal([&] { parse_json(nested(65)); }), "values are nested more than 64 levels deep");
}

TEST(StrictJson, HasAllKindsOfValues) {
  const auto json =
      parse_json(R"({"null": null, "yes": true, "minus": -1, "one": 1, "half": 0.5, "text": "a"})");
  EXPECT_TRUE(json["null"].is_null());
  EXPECT_EQ(json["yes"], true);
  EXPECT_EQ(json["minus"], -1);
  EXPECT_EQ(json["one"], 1);
  EXPECT_EQ(json["half"], 0.5);
  EXPECT_EQ(json["text"], "a");
}

TEST(StrictJson, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(refusal([] { parse_json("{\"a\": x}"); }),
            "parse error at line 1, column 7: syntax error while parsing value - invalid literal");
  EXPECT_EQ(refusal([] { read_json([] { return nlohmann::json("a").get<int>(); }); }),
            "type must be number, but is string");
  const std::string path(300, 'p');
  EXPECT_EQ(refusal([&] { read_json([&] { return nlohmann::json::object().at(path).get<int>(); }); }),
            ("key '" + path).substr(0, 200));
}

TEST(StrictJson, TakesNaturalNumbersOnly) {
  EXPECT_EQ(natural_number(nlohmann::json::parse("0"), "n"), 0u);
  EXPECT_EQ(natural_number(nlohmann::json::parse("18446744073709551615"), "n"), 18446744073709551615u);
  for (const char* wrong : {"-1", "0.5", "1e3", "\"1\"", "null"}) {
    EXPECT_EQ(
        refusal([&] { natural_number(nlohmann::json::parse(wrong), "the size"); }),
        concat("the size is ", nlohmann::json::parse(wrong).dump(), ", expected a non-negative integer"));
  }
  EXPECT_EQ(refusal([] { natural_number(std::string(50, 'a'), "n"); }),
            "n is \"" + std::string(39, 'a') + ", expected a non-negative integer");
}

TEST(ConfigurationKeys, AreKnownOrPassedOverOrRefused) {
  Configuration configuration;
  nlohmann::json steps;
  configuration.add({"max_steps", [&](const nlohmann::json& value) { steps = value; }, [] { return 7; }});
  EXPECT_EQ(configuration.values().dump(), R"({"max_steps":7})");
  configuration.apply({{"max-steps", 5}, {"derived", 1}, {"device", 2}}, {"device"});
  EXPECT_EQ(steps, 5);
  const auto refused = [&](const nlohmann::json& json) {
    return refusal([&] { configuration.apply(json, {"device"}); });
  };
  EXPECT_EQ(refused({{"max_step", 5}}), "unknown key 'max_step', did you mean max_steps?");
  EXPECT_EQ(refused({{std::string(61, 'a'), 5}}), "unknown key '" + std::string(60, 'a') + "'");
  EXPECT_EQ(refused({{"max_steps", 5}, {"max-steps", 5}}),
            "the key 'max_steps' occurs twice: once with dashes, once with underscores");
  EXPECT_EQ(refused(nlohmann::json::array()), "expected a JSON object, {\"batch_size\": 8, …}");
}

TEST(ConfigurationKeys, AreFlagsInOtherLetters) {
  EXPECT_EQ(config_key("--batch-size"), "batch_size");
  EXPECT_EQ(config_key("batch_size"), "batch_size");
  EXPECT_EQ(config_key("--"), "");
  EXPECT_EQ(flag_of_key("batch_size"), "--batch-size");
}

TEST(DerivedSettings, AreThoseThatWereNotGiven) {
  const Json given = {{"a", 1}, {"b", nullptr}, {"c", nullptr}},
             resolved = {{"a", 1}, {"b", 2}, {"c", nullptr}};
  const auto both = with_derived(given, resolved);
  EXPECT_EQ(both.dump(), R"({"a":1,"b":null,"c":null,"derived":{"b":2}})");
  EXPECT_EQ(resolved_settings(both).dump(), R"({"a":1,"b":2,"c":null})");
  EXPECT_EQ(resolved_settings(given), given);
  // A given value takes precedence over the derived value. Other derived settings are ignored.
  EXPECT_EQ(resolved_settings({{"a", 1}, {"derived", {{"a", 2}, {"d", 3}}}}).dump(), R"({"a":1})");
  EXPECT_EQ(refusal([] { resolved_settings({{"a", 1}, {"derived", 2}}); }), "'derived': expected an object");
}

}  // namespace
}  // namespace stagegpt::test
