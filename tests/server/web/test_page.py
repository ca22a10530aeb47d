#!/usr/bin/env python3
"""The chat page in headless Chromium.

    test_page.py [-v] [Page.test_name …]

LILY_TEST_URL names a running server to test against (LILY_TEST_KEY its key); without it a mock server is started, and
only then the tests of MockOnly run, which need answers made to order. LILY_SHOTS names a folder for screenshots.
Ends with status 77, which ctest takes for skipped, where there is no Chromium.
"""
import json
import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import browser  # noqa: E402
import mock_server  # noqa: E402
from browser import wait  # noqa: E402

URL = os.environ.get("LILY_TEST_URL", "")
KEY = os.environ.get("LILY_TEST_KEY", "")
SHOTS = os.environ.get("LILY_SHOTS", "")
CONTRAST = (Path(__file__).resolve().parent / "contrast.js").read_text()

DRIVER: browser.Driver | None = None


def setUpModule() -> None:
    global DRIVER
    DRIVER = browser.Driver()


def tearDownModule() -> None:
    if DRIVER:
        DRIVER.close()


class PageTest(unittest.TestCase):
    """A browser and, unless LILY_TEST_URL is set, a server of its own for each test."""
    key = ""

    def setUp(self) -> None:
        assert DRIVER
        self.mock = None if URL else mock_server.Server(key=self.key).start()
        self.url = URL or self.mock.url
        self.page = browser.Browser(DRIVER)
        self.addCleanup(self.finish)
        self.expected_lines = ""  # a text of the console lines that this test provokes
        self.page.cdp("Page.addScriptToEvaluateOnNewDocument", source="""
            window.violations = [];
            document.addEventListener('securitypolicyviolation', (e) => violations.push(`${e.effectiveDirective} ${e.blockedURI}`));""")
        self.page.open(self.url)
        self.page.js("if (arguments[0]) sessionStorage.setItem('lily.key', arguments[0])", KEY)
        if URL:  # with the key; and short answers will do
            self.page.js("localStorage.setItem('lily.settings', JSON.stringify({max_tokens: 300, system: '', tools: ''}))")
            self.page.console()  # forgets the refusals from before the key was set
            self.page.reload()
        if not self.key:
            wait(lambda: "connecting" not in self.page.text("#model-name"), "the page did not connect")

    def finish(self) -> None:
        """No test may end with a violation of the policy, or with an error on the console that it did not provoke."""
        try:
            violations = self.page.js("return window.violations ?? []")
            lines = self.page.console()
        finally:
            self.page.close()
            if self.mock:
                self.mock.shutdown()
                self.mock.server_close()
        self.assertEqual(violations, [])
        bad = [line for line in lines if line.startswith(("SEVERE", "WARNING")) or "Content Security Policy" in line]
        self.assertEqual([line for line in bad if not self.expected_lines or self.expected_lines not in line], [])

    # What the tests have in common.
    def send(self, text: str) -> None:
        self.page.fill("#input", text)
        self.page.press("Enter")

    def writing(self) -> bool:
        return bool(self.page.find_all("#stop"))

    def finished(self, seconds: float = 60) -> None:
        wait(lambda: not self.writing(), "the answer did not end", seconds)

    def ask(self, text: str) -> str:
        self.send(text)
        self.finished()
        return self.answer()

    def answer(self) -> str:
        found = self.page.texts(".assistant .markdown")
        return found[-1] if found else ""

    def count(self, selector: str) -> int:
        return len(self.page.find_all(selector))

    def shot(self, name: str) -> None:
        if SHOTS:
            time.sleep(0.4)  # transitions, and the colours of code
            self.page.screenshot(Path(SHOTS) / f"{name}.png")

    def settings(self, **values: str) -> None:
        self.page.click("button | Settings")
        for name, value in values.items():
            self.page.js("const field = document.getElementById(arguments[0]); field.value = arguments[1];",
                         f"set-{name}", value)
        self.page.click("#settings button | Save")


class Page(PageTest):
    """What holds for any server."""

    def test_an_answer_streams(self):
        self.page.js("""
            window.lengths = new Set();
            const shown = '.assistant .markdown, .assistant .thoughts';
            const note = () => lengths.add([...document.querySelectorAll(shown)].map((node) => node.textContent).join('').length);
            new MutationObserver(note).observe(document.querySelector('#thread'),
              { subtree: true, childList: true, characterData: true });""")
        text = "Count to ten, please, one number a line, and say of each whether it is odd or even. " * 2
        self.send(text)
        self.finished()
        self.assertGreater(len(self.page.js("return [...window.lengths]")), 1 if URL else 3, "the text came all at once")
        self.assertEqual(self.page.texts(".bubble"), [text.strip()])
        self.assertRegex(" ".join(self.page.texts(".costs li")), r"\d+ of \d+ prompt tokens from the cache")
        self.assertRegex(" ".join(self.page.texts(".costs li")), r"[\d.,]+ tok/s")

    def test_stop_ends_the_answer_and_the_next_message_works(self):
        self.send("Tell a slow and very long story.")
        wait(lambda: any(self.page.texts(".assistant .markdown, .assistant .thoughts")), "nothing streamed")
        if not URL:  # a small model may be at its end already
            self.page.click("#stop")
        self.page.press("Escape")
        self.finished(5)
        self.ask("And now shortly.")
        self.assertEqual(len(self.page.texts(".bubble")), 2)
        self.assertEqual(self.count(".assistant"), 2)

    def test_regenerate_replaces_the_last_answer(self):
        self.ask("One answer.")
        self.page.click(".action | Regenerate this answer")
        self.finished()
        self.assertEqual(self.count(".assistant"), 1)
        self.assertEqual(self.count(".error"), 0)

    def test_reload_restores_the_chat(self):
        self.ask("Something to keep.")
        before = self.page.text("#thread")
        self.page.reload()
        wait(lambda: self.page.find_all(".assistant"), "nothing was restored")
        self.assertEqual(self.page.text("#thread"), before)
        self.assertEqual(self.page.texts("#chats a"), ["Something to keep."])

    def test_edit_drops_what_follows(self):
        self.ask("The first.")
        self.ask("The second.")
        self.page.click(".user:first-child .action | Edit this message")
        self.assertIn("Sending drops the 3 messages below.", self.page.text("#thread"))
        self.assertEqual(self.count(".dropped"), 3)
        self.shot("edit")
        self.page.press("Escape")
        self.assertEqual(self.count(".dropped"), 0)
        self.assertEqual(self.page.texts(".bubble"), ["The first.", "The second."])
        self.page.click(".user:first-child .action | Edit this message")
        self.page.fill(".edit", "The first, changed.")
        self.page.press("Enter")
        self.finished()
        self.assertEqual(self.page.texts(".bubble"), ["The first, changed."])
        self.assertEqual(self.count(".assistant"), 1)

    def test_new_chat_list_and_delete(self):
        self.ask("Chat one.")
        self.page.press("Control", "Shift", "O")
        wait(lambda: not self.page.find_all(".message"), "the chat did not change")
        self.ask("Chat two.")
        self.assertEqual(self.page.texts("#chats a"), ["Chat two.", "Chat one."])
        self.page.click("#chats a | Chat one.")
        wait(lambda: self.page.texts(".bubble") == ["Chat one."], "the chat did not open")
        self.page.click("#chats .action | Delete Chat two.")
        self.assertEqual(self.page.texts("#chats a"), ["Chat one."])
        self.page.click(".toast button | Undo")
        self.assertEqual(sorted(self.page.texts("#chats a")), ["Chat one.", "Chat two."])

    def test_keyboard_alone(self):
        self.assertEqual(self.page.js("return document.activeElement.id"), "input")
        self.page.press("l"), self.page.press("Shift", "Enter"), self.page.press("m")
        self.page.press("Enter")
        self.finished()
        self.assertEqual(self.page.texts(".bubble"), ["l\nm"])
        self.assertEqual(self.page.js("return document.activeElement.id"), "input")
        self.page.press("Up")  # edits the last message
        self.page.type("!")
        self.page.press("Enter")
        self.finished()
        self.assertEqual(self.page.texts(".bubble"), ["l\nm!"])
        self.page.type("slow, please")
        self.page.press("Enter")
        wait(lambda: self.writing() or self.count(".assistant") > 1, "nothing was sent")
        self.page.press("Escape")
        self.finished(5)
        seen = set()
        for _ in range(60):  # Tab reaches everything, and what has the focus shows it
            self.page.press("Tab")
            name, outline = self.page.js("""const it = document.activeElement;
                return it === document.body ? ['', ''] : [it.ariaLabel || it.id || it.textContent.trim(), getComputedStyle(it).outlineStyle];""")
            self.assertTrue(outline != "none" or name == "Message", f"{name} shows no focus")
            seen.add(name)
        for name in ["Settings", "Export this chat as JSON", "Regenerate this answer", "Copy this message", "Edit this message"]:
            self.assertIn(name, seen)

    def test_a_phone_shows_no_horizontal_scroll_bar(self):
        self.page.size(360, 740, mobile=True)
        self.page.reload()
        self.shot("phone-empty")
        self.send("markdown, please")
        self.finished()
        self.shot("phone")
        wide = self.page.js("""return [document.documentElement, document.querySelector('#scroller')]
            .map((node) => node.scrollWidth - node.clientWidth)""")
        self.assertEqual(wide, [0, 0])
        self.page.click("#menu")
        self.assertTrue(self.page.find_all("#chats a"))
        self.shot("phone-drawer")
        self.page.press("Escape")
        wait(lambda: not self.page.find_all("#chats a"), "the drawer stayed open")
        self.page.click("button | Settings")
        self.shot("phone-settings")
        self.assertEqual(self.page.js("const form = document.querySelector('.fields'); return form.scrollWidth - form.clientWidth"), 0)

    def test_dark_and_light_have_contrast(self):
        self.ask("Some text to look at.")
        for scheme in ["light", "dark"]:
            self.page.scheme(scheme)
            self.shot(scheme)
            ratios = self.page.js(CONTRAST)
            self.assertGreater(len(ratios), 5)
            self.assertEqual([entry for entry in ratios if entry[1] < 4.5], [], scheme)
        self.settings(theme="light")  # the setting wins over the system
        self.assertEqual(self.page.js("return getComputedStyle(document.body).colorScheme"), "light")

    def test_export_holds_the_conversation(self):
        self.ask("Export me.")
        self.page.js("""URL.createObjectURL = (blob) => { blob.text().then((text) => { window.exported = text; }); return '#'; };
                        HTMLAnchorElement.prototype.click = () => {};""")
        self.page.click("button | Export this chat as JSON")
        text = wait(lambda: self.page.js("return window.exported"), "nothing was exported")
        self.assertEqual([message["role"] for message in json.loads(text)["messages"]], ["user", "assistant"])



class Controls(PageTest):
    """The checks above can fail."""

    def test_a_violation_is_seen(self):
        self.page.js("""const img = document.createElement('img'); document.body.append(img);
                        img.setAttribute('onerror', 'window.hacked = 1'); img.src = 'https://example.invalid/x.png';""")
        found = wait(lambda: self.page.js("return window.violations"), "the violation was not seen")
        self.assertIn("example.invalid", " ".join(found) + " ".join(self.page.js("return window.violations")))
        self.assertIsNone(self.page.js("return window.hacked ?? null"))
        self.page.js("window.violations = []")
        self.expected_lines = "Content Security Policy"

    def test_a_pale_text_is_seen(self):
        self.page.js("""const p = document.createElement('p'); p.textContent = 'pale'; p.style.color = '#aaa';
                        document.querySelector('#sidebar').append(p);""")
        self.assertEqual([entry[0] for entry in self.page.js(CONTRAST) if entry[1] < 4.5], ["P.: pale"])


@unittest.skipIf(URL, "needs answers made to order")
class MockOnly(PageTest):
    """What needs a server that answers, or fails, to order."""

    def bodies(self) -> list[dict]:
        return self.mock.log.bodies

    def test_text_is_shown_while_it_streams(self):
        self.send("slow")
        wait(lambda: "slow words" in self.answer(), "no intermediate text")
        self.assertTrue(self.writing())
        self.assertEqual(self.page.js("return document.querySelector('.assistant').ariaBusy"), "true")
        first = len(self.answer())
        wait(lambda: len(self.answer()) > first, "the text did not grow")

    def test_stop_closes_the_connection(self):
        self.send("slow")
        wait(self.answer, "nothing streamed")
        self.page.press("Escape")
        self.finished(5)
        wait(lambda: self.mock.log.disconnects == 1, "the server did not see the client leave")
        self.assertIn("Stopped.", self.page.text(".notes"))
        self.ask("next")
        self.assertEqual([m["role"] for m in self.bodies()[-1]["messages"]], ["user", "assistant", "user"])

    def test_regenerate_asks_the_same_again(self):
        self.ask("hello")
        self.assertEqual(self.answer().strip(), "Answer 1 to: hello")
        self.page.click(".action | Regenerate this answer")
        wait(lambda: "Answer 2" in self.answer(), "no second answer")
        self.assertEqual(self.bodies()[0], self.bodies()[1])

    def test_reload_while_streaming_keeps_what_came(self):
        self.send("slow")
        wait(lambda: len(self.answer()) > 30, "nothing streamed")
        self.page.reload()
        self.assertIn("slow words", wait(self.answer, "nothing was restored"))
        self.assertIn("Stopped.", self.page.text(".notes"))
        self.assertEqual(self.count(".action | Regenerate this answer"), 1)

    def test_thinking_is_folded_and_goes_back(self):
        self.send("think")
        wait(lambda: "Thinking… " in self.page.text(".thinking summary"), "no live summary")
        wait(lambda: "Thinking… 1 s" in self.page.text(".thinking summary"), "the clock stands still")
        self.assertFalse(self.page.js("return document.querySelector('.thinking').open"))
        self.finished()
        self.assertRegex(self.page.text(".thinking summary"), r"^Thought for [\d.]+ s$")
        self.assertIn("(96 thinking)", self.page.text(".costs"))
        self.page.click(".thinking summary")
        self.assertIn("Then <b>I</b> answer.", self.page.text(".thoughts"))
        self.ask("and now?")
        self.assertIn("Then <b>I</b> answer.", self.bodies()[1]["messages"][1]["reasoning_content"])

    def test_tool_calls_and_their_results(self):
        self.page.click("button | Settings")
        self.page.click("#settings button | Insert an example")
        self.page.click("#settings button | Save")
        self.ask("use two tools")
        self.assertEqual(self.bodies()[0]["tools"][0]["function"]["name"], "get_weather")
        self.assertEqual(self.page.texts(".call-name strong"), ["get_weather"] * 2)
        self.assertIn('"city": "Paris 0",\n', self.page.text(".call pre"))
        self.shot("tools")
        self.page.fill(".results textarea:first-child", '{"celsius": 21}')
        self.page.press("Enter")  # goes on to the one that is empty
        self.page.type("rain")
        self.page.press("Enter")
        wait(lambda: "Answer 2 to: rain" in self.answer(), "the conversation did not go on")
        sent = self.bodies()[1]["messages"]
        self.assertEqual([m["role"] for m in sent], ["user", "assistant", "tool", "tool"])
        self.assertEqual(sent[1]["tool_calls"][1]["function"]["arguments"], '{"city": "Paris 1", "unit": "celsius"}')
        self.assertEqual([m["tool_call_id"] for m in sent[2:]], ["call_0", "call_1"])
        self.assertEqual(self.count(".results"), 0)
        self.page.reload()
        wait(lambda: self.count(".call") == 2, "the calls were not restored")

    def test_settings_are_sent(self):
        self.settings(system="Be brief.", temperature="0", top_p="0.9", top_k="20", min_p="0.05", max_tokens="64", seed="7",
                      enable_thinking="off", preserve_thinking="on")
        self.page.reload()
        self.ask("hello")
        body = self.bodies()[0]
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}])
        self.assertEqual({name: body.get(name) for name in ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "model"]},
                         {"temperature": 0, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_tokens": 64, "seed": 7,
                          "model": mock_server.MODEL})
        self.assertEqual(body["chat_template_kwargs"], {"enable_thinking": False, "preserve_thinking": True})

    def test_blank_settings_are_not_sent(self):
        self.ask("hello")
        self.assertEqual(sorted(self.bodies()[0]), ["messages", "model", "stream", "stream_options"])

    def test_tools_that_are_no_json_are_refused(self):
        self.page.click("button | Settings")
        self.page.fill("#set-tools", "[{")
        self.page.click("#settings button | Save")
        self.assertIn("Not a list of tools", self.page.text("#tools-error"))
        self.assertTrue(self.page.find_all("#settings"))

    def test_markdown_and_code(self):
        self.ask("markdown")
        shown = lambda css: self.page.js("return document.querySelectorAll('.markdown ' + arguments[0]).length", css)
        for css, number in {"h1": 1, "table": 1, "td br": 1, "ol > li": 3, "ol ul": 1, "blockquote": 1, ".code": 2, "li .code": 1}.items():
            self.assertEqual(shown(css), number, css)
        wait(lambda: shown(".code .token.keyword") > 2, "no colours")
        self.assertIn('"<script>alert(1)</script>"', self.page.texts(".code pre")[1])
        link = self.page.js("const a = document.querySelector('.markdown a'); return [a.href, a.rel, a.target]")
        self.assertEqual(link, ["https://example.invalid/sort", "noopener noreferrer", "_blank"])
        self.page.click(".code:last-of-type button | Copy this code")
        wait(lambda: "Copied" in self.page.text("#thread"), "no copy")
        for scheme in ["light", "dark"]:
            self.page.scheme(scheme)
            self.shot(f"markdown-{scheme}")
            self.assertEqual([entry for entry in self.page.js(CONTRAST) if entry[1] < 4.5], [])

    def test_hostile_markdown_executes_nothing(self):
        self.ask("hostile")
        self.assertIn("the end of it", self.answer())
        for link in self.page.js("return [...document.querySelectorAll('.markdown a')].map((a) => a.getAttribute('href'))"):
            self.assertIn(link, [None, "https://example.invalid/fine"])
        bad = self.page.js("""return [...document.querySelectorAll('.markdown *')].filter((node) =>
            /^(SCRIPT|IMG|IFRAME|STYLE|FORM|INPUT|BASE|OBJECT|EMBED|MATH)$/i.test(node.tagName) || node.hasAttribute('style')
            || node.getAttributeNames().some((name) => name.startsWith('on'))).map((node) => node.outerHTML)""")
        self.assertEqual(bad, [])
        self.page.js("document.querySelectorAll('.markdown a, .markdown b, .markdown p').forEach((node) => node.click())")
        time.sleep(0.3)
        self.assertIsNone(self.page.js("return window.hacked ?? null"))
        requests = self.page.js("return performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin)")
        self.assertEqual(set(requests), {self.url})

    def test_errors_say_what_to_do(self):
        self.expected_lines = "/v1/chat/completions"
        for text, says in {"busy": "Retry in 3 s", "broken": "The worker died.", "too long": "Start a new chat"}.items():
            self.ask(text)
            self.assertIn(says, self.page.texts(".error")[-1])
        self.shot("error")
        self.ask("flaky")
        self.page.click(".retry")
        wait(lambda: "to: flaky" in self.answer(), "retry did nothing")
        self.assertEqual(self.bodies()[-1]["messages"][-1]["content"], "flaky")

    def test_errors_in_the_stream_keep_the_text(self):
        for text, says in {"midstream": "The device was lost.", "hang up": "ended before the answer was complete"}.items():
            self.ask(text)
            self.assertEqual(self.answer().strip(), "Half of it")
            self.assertIn(says, self.page.texts(".error")[-1])

    def test_an_unreachable_server(self):
        self.expected_lines = "/v1/"
        self.page.js("window.fetch = () => Promise.reject(new TypeError('failed'))")
        self.ask("hello")
        self.assertIn("cannot be reached", self.page.text(".error"))

    def test_cut_answers_and_ignored_fields_are_told(self):
        self.ask("cut, with ignored fields")
        self.assertIn("The answer was cut", self.page.text(".notes"))
        self.assertIn("The server ignored these settings: user", self.page.text(".notes"))

    def test_waiting_for_the_prompt_is_shown(self):
        self.send("prefill")
        wait(lambda: "Reading the prompt… 1 s" in self.page.text(".waiting"), "no clock")
        self.finished()
        self.assertFalse(self.page.find_all(".waiting"))

    def test_an_answer_goes_on_while_another_chat_is_shown(self):
        self.send("slow")
        wait(self.answer, "nothing streamed")
        self.page.press("Control", "Shift", "O")
        self.ask("elsewhere")
        self.assertEqual(self.count("#chats .dot"), 1)
        self.page.click("#chats a[title='slow']")
        wait(lambda: "slow words" in self.answer() and self.writing(), "the answer is gone")
        self.page.press("Escape")
        self.finished(5)
        wait(lambda: self.mock.log.disconnects == 1, "the server did not see the client leave")

    def test_a_long_conversation_stays_fast(self):
        messages = [{"role": "user", "content": f"question {n}"} if n % 2 == 0 else
                    {"role": "assistant", "content": mock_server.MARKDOWN, "reasoning_content": "", "tool_calls": []} for n in range(200)]
        chat = {"id": "0123", "title": "much", "created": 1, "updated": 1, "messages": messages}
        self.page.js("localStorage.setItem('lily.chat.0123', arguments[0]); location.hash = '#0123'", json.dumps(chat))
        wait(lambda: self.count(".message") == 200, "the chat did not open", 30)
        self.page.js("""window.kept = [...document.querySelectorAll('.block')]; window.slowest = 0;
            new PerformanceObserver((list) => list.getEntries().forEach((entry) => { slowest = Math.max(slowest, entry.duration); }))
              .observe({ type: 'longtask' });""")
        self.ask("long")
        self.assertTrue(self.page.js("return window.kept.every((node) => node.isConnected)"), "old messages were rendered anew")
        self.assertLess(self.page.js("return window.slowest"), 1500)


@unittest.skipIf(URL, "needs a server with a key")
class KeyPrompt(PageTest):
    key = "a secret"

    def give(self, key: str) -> None:
        self.page.fill("#key-input", key)
        self.page.press("Enter")

    def test_the_key_is_asked_for_and_kept_for_the_tab(self):
        self.expected_lines = "401"
        self.page.find("#key-input")
        self.shot("key")
        self.give("wrong")
        wait(lambda: "did not accept" in self.page.text("#key"), "a wrong key was not told")
        self.give(self.key)
        wait(lambda: mock_server.MODEL in self.page.text("#model-name"), "the key did not help")
        self.assertIn("to: hello", self.ask("hello"))
        kept = "return [sessionStorage.getItem('lily.key'), localStorage.getItem('lily.key')]"
        self.assertEqual(self.page.js(kept), [self.key, None])
        self.page.reload()
        wait(lambda: mock_server.MODEL in self.page.text("#model-name"), "the key was lost")

    def test_a_message_without_a_key_is_sent_when_it_is_given(self):
        self.expected_lines = "401"
        self.page.find("#key-input")
        self.page.press("Escape")
        self.send("hello")
        self.page.find("#key-input")
        self.page.click("#key-remember")
        self.give(self.key)
        wait(lambda: "to: hello" in self.answer(), "the message was not sent again")
        self.assertEqual(self.count(".error"), 0)
        self.assertEqual(self.page.js("return localStorage.getItem('lily.key')"), self.key)


if __name__ == "__main__":
    if browser.MISSING:
        print(f"skipped: {browser.MISSING}")
        sys.exit(77)
    unittest.main()
