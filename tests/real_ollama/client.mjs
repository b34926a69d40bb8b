// What a user of the official JavaScript client does; prints one JSON object for the test to judge.
// Run as: node client.mjs <folder with node_modules> <base URL>
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, host] = process.argv.slice(2)
const require = createRequire(pathToFileURL(`${folder}/x.js`))
const { Ollama } = require('ollama')

const client = new Ollama({ host })
const asked = {
  model: 'smol',
  messages: [{ role: 'user', content: 'Say hi' }],
  options: { temperature: 0, num_predict: 8 },
}
const once = await client.chat(asked)
let streamed = ''
let last
for await (const part of await client.chat({ ...asked, stream: true })) {
  streamed += part.message.content
  last = part
}
const generated = await client.generate({ model: 'smol', prompt: 'Say hi', options: asked.options })
const embedded = await client.embed({ model: 'smol', input: ['a', 'b'] }).catch((error) => error)
const failure = await client.chat({ ...asked, model: 'nosuch' }).catch((error) => error)
console.log(
  JSON.stringify({
    once: once.message.content,
    streamed,
    generated: generated.response,
    done_reason: last.done_reason,
    eval_count: last.eval_count,
    models: (await client.list()).models.map((model) => model.name),
    family: (await client.show({ model: 'smol' })).details.family,
    loaded: (await client.ps()).models.map((model) => model.name),
    embedded: embedded.embeddings ? embedded.embeddings.length : embedded.message,
    error: failure.message,
    status: failure.status_code,
  }),
)
