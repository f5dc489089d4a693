"""The pages of health and metrics of a worker in the simulated world, as a probe and a scraper get them."""

PORT = 8080


async def get(here, path, *, over_tcp=False):
    """The status and the body of an answer."""
    client = here.world.client
    connection = await (client.connect_tcp(PORT) if over_tcp else client.connect_unix(here.world.settings.http_socket))
    async with connection.stream as stream:
        await stream.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
            data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def _length(data):
    return int(data.split(b"Content-Length: ")[1].split(b"\r\n")[0])
