// Asks for http:// URLs the way undici's ProxyAgent and hpagent do: CONNECT to the origin, then plain HTTP inside.
// Arguments: the proxy's host:port, then URLs of one origin. Prints a status a line.
import http from "node:http";

const [proxy, ...urls] = process.argv.slice(2);
const [host, port] = proxy.split(":");
const origin = new URL(urls[0]);

const tunnel = http.request({ host, port, method: "CONNECT", path: origin.host, headers: { host: origin.host } });
tunnel.on("connect", async (response, socket) => {
  if (response.statusCode !== 200) throw new Error(`CONNECT: ${response.statusCode}`);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  agent.createConnection = () => socket;
  for (const url of urls) {
    const { pathname } = new URL(url);
    await new Promise((resolve, reject) => {
      const request = http.request({ agent, host: origin.hostname, port: origin.port, path: pathname, headers: { "user-agent": "Tester/1.0" } }, (answer) => {
        console.log(answer.statusCode);
        answer.resume().on("end", resolve);
      });
      request.on("error", reject).end();
    });
  }
  socket.destroy();
});
tunnel.end();
