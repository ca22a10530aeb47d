"""Real clients, unchanged but for the address: the OpenAI library, LangChain and LiteLLM. Needs the packages of tools/test_clients.sh."""
import asyncio
import json
import os
import unittest

# Before the imports: none of them may look for another host.
os.environ.update({"OPENAI_API_KEY": "unused", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGCHAIN_TRACING_V2": "false", "LANGSMITH_TRACING": "false"})

import httpx
import openai

import serve
from serve import Case, READ, Server, WEATHER

WORD = [{"role": "user", "content": "What is the last letter of terrace?"}]
TWO = [{"role": "user", "content": "What is the weather in Paris? And what is the weather in Rome?"}]
ANSWER = "The last letter of terrace is e."
OFF = {"enable_thinking": False}


class OpenAi(Case):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="unused", max_retries=0, timeout=serve.PATIENCE)

    def tearDown(self):
        self.client.close()
        super().tearDown()

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "lily")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_chat(self):
        r = self.client.chat.completions.create(model="tiny", messages=WORD, temperature=0, logprobs=True, top_logprobs=2)
        self.assertEqual(r.choices[0].message.content, ANSWER)
        self.assertEqual(r.choices[0].message.reasoning_content, "t-e-r-r-a-c-e.")
        self.assertEqual(r.choices[0].finish_reason, "stop")
        self.assertEqual(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
        self.assertGreater(r.usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertGreaterEqual(r.usage.prompt_tokens_details.cached_tokens, 0)
        entry = r.choices[0].logprobs.content[0]
        self.assertEqual(len(entry.top_logprobs), 2)
        self.assertEqual(bytes(entry.bytes).decode(), entry.token)

    def test_every_thinking_switch_that_the_library_can_send(self):
        for extra in ({"extra_body": OFF}, {"extra_body": {"chat_template_kwargs": OFF}}, {"reasoning_effort": "none"}, {"extra_body": {"thinking": {"type": "disabled"}}}):
            m = self.client.chat.completions.create(model="tiny", messages=WORD, temperature=0, **extra).choices[0].message
            self.assertEqual((m.content, getattr(m, "reasoning_content", None)), (ANSWER, None), extra)

    def test_stream(self):
        reasoning, content, usage, finish = "", "", None, None
        for chunk in self.client.chat.completions.create(model="tiny", messages=WORD, temperature=0, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                content += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", None) or ""
                finish = choice.finish_reason or finish
        self.assertEqual((reasoning, content, finish), ("t-e-r-r-a-c-e.", ANSWER, "stop"))
        self.assertEqual(usage.completion_tokens, 21)

    def test_the_librarys_own_joining_of_a_stream(self):
        with self.client.chat.completions.stream(model="tiny", messages=TWO, tools=[WEATHER], temperature=0) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertEqual([json.loads(c.function.arguments) for c in final.choices[0].message.tool_calls], [{"city": "Paris"}, {"city": "Rome"}])
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")

    def test_a_tool_loop_with_parallel_calls(self):
        messages = list(TWO)
        r = self.client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER], temperature=0)
        calls = r.choices[0].message.tool_calls
        self.assertEqual([(c.function.name, json.loads(c.function.arguments)) for c in calls], [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})])
        self.assertEqual(len({c.id for c in calls}), 2)
        messages.append(r.choices[0].message)  # the library's own object, as its documentation shows
        messages += [{"role": "tool", "tool_call_id": c.id, "content": "rain, 7 degrees"} for c in calls]
        again = self.client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER], temperature=0, max_tokens=100)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, r.usage.prompt_tokens)
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            r = self.client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], tools=[WEATHER, READ], tool_choice=choice,
                                                    temperature=0, max_tokens=200, parallel_tool_calls=False)
            self.assertEqual(len(r.choices[0].message.tool_calls), 1)

    def test_completions(self):
        r = self.client.completions.create(model="tiny", prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=8, logprobs=2)
        self.assertEqual("".join(r.choices[0].logprobs.tokens), r.choices[0].text)
        streamed = "".join(c.choices[0].text for c in self.client.completions.create(model="tiny", prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=8, stream=True))
        self.assertEqual(streamed, r.choices[0].text)

    def test_errors_become_the_librarys_exceptions(self):
        def create(**body):
            return self.client.chat.completions.create(**{"model": "tiny", "messages": WORD, "max_tokens": 1, **body})
        with self.assertRaises(openai.BadRequestError) as e:
            create(temperature=-1)
        self.assertEqual((e.exception.param, e.exception.status_code), ("temperature", 400))
        with self.assertRaises(openai.BadRequestError) as e:
            create(n=2)
        self.assertEqual(e.exception.param, "n")
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as e:
                create(messages=[{"role": "user", "content": "word " * 9000}], stream=stream)
            self.assertEqual(e.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError) as e:
            create(model="gpt-4")
        self.assertEqual(e.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="tiny", input="x")
        with self.assertRaises(openai.BadRequestError) as e:
            create(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}})
        self.assertEqual(e.exception.param, "response_format")
        with Server(env={"LILY_API_KEY": "right"}) as s:
            wrong = openai.OpenAI(base_url=s.url + "/v1", api_key="wrong", max_retries=0)
            with self.assertRaises(openai.AuthenticationError) as e:
                wrong.models.list()
            self.assertEqual(e.exception.code, "invalid_api_key")
            right = openai.OpenAI(base_url=s.url + "/v1", api_key="right", max_retries=0)
            self.assertEqual([m.id for m in right.models.list()], ["tiny"])
            wrong.close()
            right.close()

    def test_a_full_queue_is_a_rate_limit_that_the_library_waits_out(self):
        with Server("--parallel", 1, "--queue", 1) as s:
            async def many():
                async with openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="unused", max_retries=0, timeout=serve.PATIENCE) as client, \
                        openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="unused", max_retries=20, timeout=serve.PATIENCE) as patient:
                    def ask(c, n):
                        return c.completions.create(model="tiny", prompt=f"{n}, 2, 3,", max_tokens=200, temperature=0, logit_bias={"8182": -100, "8180": -100})
                    busy = [asyncio.ensure_future(ask(client, i)) for i in range(12)]
                    waited = asyncio.ensure_future(ask(patient, 99))
                    results = await asyncio.gather(*busy, return_exceptions=True)
                    return results, await waited
            results, waited = asyncio.run(many())
            refused = [r for r in results if isinstance(r, openai.RateLimitError)]
            self.assertEqual(len(refused) + sum(hasattr(r, "choices") for r in results), 12)
            self.assertGreater(len(refused), 0)
            self.assertEqual(waited.usage.completion_tokens, 200)

    def test_async(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="unused", max_retries=0) as client:
                async def one(i):
                    r = await client.chat.completions.create(model="tiny", messages=WORD, temperature=0)
                    return r.choices[0].message.content

                async def streamed(i):
                    text = ""
                    async for chunk in await client.chat.completions.create(model="tiny", messages=WORD, temperature=0, stream=True):
                        text += chunk.choices[0].delta.content or ""
                    return text
                return await asyncio.gather(*(f(i) for i in range(4) for f in (one, streamed)))
        self.assertEqual(set(asyncio.run(run())), {ANSWER})

    def test_leaving_a_stream_stops_the_work(self):
        stream = self.client.chat.completions.create(model="tiny", messages=WORD, stream=True, max_tokens=3000, extra_body={**OFF, "logit_bias": {"8182": -100, "8180": -100}})
        next(iter(stream))
        stream.close()
        self.server.idle(10)

    def test_httpx(self):
        with httpx.Client(base_url=self.server.url) as c:
            r = c.post("/v1/chat/completions", json={"messages": WORD, "temperature": 0, "user": "x"})
            self.assertEqual((r.status_code, r.headers["x-lily-ignored"]), (200, "user"))
            with c.stream("POST", "/v1/chat/completions", json={"messages": WORD, "temperature": 0, "stream": True}) as r:
                self.assertEqual([line for line in r.iter_lines() if line][-1], "data: [DONE]")


class LangChain(Case):
    def model(self, **more):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model="tiny", base_url=self.server.url + "/v1", api_key="unused", temperature=0, max_retries=0, extra_body=OFF, **more)

    def test_invoke_stream_and_batch(self):
        model = self.model()
        r = model.invoke("What is the last letter of terrace?")
        self.assertEqual((r.content, r.response_metadata["finish_reason"]), (ANSWER, "stop"))
        self.assertEqual(r.usage_metadata["total_tokens"], r.usage_metadata["input_tokens"] + r.usage_metadata["output_tokens"])
        pieces = [c.content for c in model.stream("What is the last letter of terrace?")]
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), ANSWER)
        self.assertEqual({m.content for m in model.batch(["What is the last letter of terrace?"] * 3)}, {ANSWER})
        self.assertEqual(model.invoke("What is the last letter of terrace?", stop=["terrace is"]).content, "The last letter of ")

    def test_bind_tools(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool

        @tool
        def get_weather(city: str) -> str:
            """Get the current weather for a city"""
            return "rain, 7 degrees"

        model = self.model().bind_tools([get_weather])
        messages = [HumanMessage(TWO[0]["content"])]
        said = model.invoke(messages)
        self.assertEqual([(c["name"], c["args"]) for c in said.tool_calls], [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})])
        joined = None
        for chunk in model.stream(messages):
            joined = chunk if joined is None else joined + chunk
        self.assertEqual([c["args"] for c in joined.tool_calls], [{"city": "Paris"}, {"city": "Rome"}])
        messages += [said, *(ToolMessage(get_weather.invoke(c["args"]), tool_call_id=c["id"]) for c in said.tool_calls)]
        self.assertIsInstance(model.invoke(messages).content, str)
        forced = self.model().bind_tools([get_weather], tool_choice="get_weather").invoke("Hi")
        self.assertEqual(forced.tool_calls[0]["name"], "get_weather")


class LiteLlm(Case):
    def test_completion_and_stream(self):
        import litellm
        litellm.telemetry = False
        body = {"model": "openai/tiny", "api_base": self.server.url + "/v1", "api_key": "unused", "messages": WORD, "temperature": 0, "num_retries": 0}
        r = litellm.completion(**body)
        self.assertEqual((r.choices[0].message.content, r.choices[0].message.reasoning_content), (ANSWER, "t-e-r-r-a-c-e."))
        streamed = [c.choices[0].delta for c in litellm.completion(**body, stream=True)]
        self.assertEqual("".join(d.content or "" for d in streamed), ANSWER)
        r = litellm.completion(**{**body, "messages": TWO}, tools=[WEATHER])
        self.assertEqual([json.loads(c.function.arguments) for c in r.choices[0].message.tool_calls], [{"city": "Paris"}, {"city": "Rome"}])
        with self.assertRaises(litellm.BadRequestError):
            litellm.completion(**{**body, "temperature": -1})
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(**{**body, "messages": [{"role": "user", "content": "word " * 9000}]})


if __name__ == "__main__":
    unittest.main()
