// A loop of your own on "pocket/context": any model that speaks the Chat port, any tools, a history that the
// model compacts and expands by itself, kept in a file. example.test.ts runs it.
import {
  type Chat,
  Compressor,
  catalogMessage,
  collectAnswer,
  compactBlock,
  compactTool,
  expandBlock,
  expandTool,
  type Message,
  Store,
  type Tool,
} from "pocket/context";

export interface MyTool extends Tool {
  run(json: string): Promise<string>;
}

export async function myAgent(chat: Chat, task: string, mine: readonly MyTool[], file: string, limit = 8192) {
  const store = new Store(file);
  const count = ({ content }: Message) => Math.ceil(content.length / 3);
  const instructions: Message[] = [
    { role: "system", content: "You are an agent. You may compact your history." },
  ];
  const { conversation } = store.create({ id: "mine", title: task, settings: {}, instructions }, count);
  conversation.request({ role: "user", content: task });
  const tools: Tool[] = [compactTool, expandTool, ...mine];
  const compressor = new Compressor({ chat, tools });
  for (;;) {
    const { history } = conversation;
    const catalog = catalogMessage(history, { used: history.tokens, limit });
    const { message } = await collectAnswer(chat.chat({ messages: [...history.messages(), catalog], tools }));
    const results: Message[] = [];
    const later: (() => unknown)[] = [];
    for (const { id, name, arguments: json } of message.toolCalls ?? []) {
      let text = `There is no tool ${name}.`;
      if (name === compactTool.name)
        ({ text } = await compactBlock(json, { conversation, compressor, limit }));
      else if (name === expandTool.name) {
        const expansion = expandBlock(json, { conversation, limit, pending: 0 });
        text = expansion.text;
        if (expansion.done) later.push(expansion.done.apply);
      } else text = (await mine.find((tool) => tool.name === name)?.run(json)) ?? text;
      results.push({ role: "tool", content: text, toolCallId: id, name });
    }
    conversation.exchange([message, ...results]);
    for (const apply of later) apply();
    if (!message.toolCalls) return { answer: message.content, conversation, close: () => store.close() };
  }
}
