"""Where anybody can have a name or put content: what a wildcard over it lets through is anybody's choice. Data, and a few patterns."""

from __future__ import annotations

import re
from typing import NamedTuple


class Group(NamedTuple):
    """Names that are rarely meant for one reason, which reads on after `allows` or `serves`."""

    reason: str
    names: tuple[str, ...]


def _host_group(reason: str, names: str) -> Group:
    return Group(reason, tuple(names.split()))


HOSTING: tuple[Group, ...] = (
    _host_group(
        "pages and sites that anybody can publish",
        "appspot.com azurestaticapps.net azurewebsites.net blogspot.com carrd.co codeberg.page firebaseapp.com framer.app framer.website ghost.io "
        "github.io gitlab.io glitch.me hf.space myshopify.com neocities.org netlify.app notion.site now.sh pages.dev readthedocs.io replit.app replit.dev "
        "sourceforge.io streamlit.app surge.sh tumblr.com vercel.app web.app webflow.io weebly.com wixsite.com wordpress.com",
    ),
    _host_group(
        "programs that anybody can run",
        "a.run.app azure-api.net azurecontainerapps.io cfapps.io cleverapps.io cloudapp.azure.com cloudapp.net cloudfunctions.net deno.dev deno.net "
        "elasticbeanstalk.com execute-api.amazonaws.com fly.dev gitpod.io herokuapp.com koyeb.app modal.run northflank.app on.aws ondigitalocean.app "
        "onrender.com pipedream.net pythonanywhere.com railway.app render.com repl.co run.app supabase.co val.run workers.dev",
    ),
    _host_group(
        "what anybody uploads",
        "backblazeb2.com blob.core.windows.net digitaloceanspaces.com file.core.windows.net githubusercontent.com googleusercontent.com hf.co "
        "linodeobjects.com myqcloud.com r2.cloudflarestorage.com r2.dev s3.amazonaws.com scw.cloud storage.googleapis.com wasabisys.com "
        "web.core.windows.net",
    ),
    _host_group(
        "whatever anybody puts behind a content delivery network",
        "akamaized.net amplifyapp.com azureedge.net azurefd.net b-cdn.net cdn77.org cloudflare.net cloudfront.net edgekey.net edgesuite.net fastly.net "
        "fastlylb.net global.ssl.fastly.net stackpathcdn.com trafficmanager.net",
    ),
    _host_group(
        "tunnels to anybody's machine",
        "bore.pub cfargotunnel.com devtunnels.ms lhr.life loca.lt localhost.run localtunnel.me ngrok-free.app ngrok-free.dev ngrok.app ngrok.dev ngrok.io "
        "pagekite.me serveo.net tailscale.net trycloudflare.com ts.net tunnelmole.net",
    ),
    _host_group(
        "addresses that anybody can give a name",
        "afraid.org ddns.net duckdns.org dyndns.org dynu.net freeddns.org hopto.org localtest.me lvh.me mooo.com nip.io no-ip.org noip.me rbndr.us "
        "servebeer.com sslip.io sytes.net traefik.me xip.io zapto.org",
    ),
    _host_group(
        "requests that anybody can read",
        "beeceptor.com burpcollaborator.net canarytokens.com dnslog.cn interact.sh m.pipedream.net oast.fun oast.live oast.me oast.online oast.pro "
        "oast.site oastify.com requestcatcher.com requestrepo.com",
    ),
)

ANYBODYS: tuple[Group, ...] = (
    _host_group(
        "files of anybody's repository",
        "cdn.jsdelivr.net cdn.statically.io esm.sh gist.github.com gist.githubusercontent.com media.githubusercontent.com raw.githack.com "
        "raw.githubusercontent.com rawcdn.githack.com unpkg.com",
    ),
    _host_group(
        "texts that anybody writes down",
        "0bin.net bpa.st controlc.com dpaste.com dpaste.org friendpaste.com ghostbin.com hastebin.com ix.io p.ip.fi paste.debian.net paste.ee paste.rs "
        "pastebin.com pastes.io privatebin.net rentry.co sprunge.us termbin.com",
    ),
    _host_group(
        "files that anybody uploads",
        "0x0.st bashupload.com catbox.moe cdn.discordapp.com docs.google.com drive.google.com dropbox.com file.io filebin.net files.catbox.moe gofile.io "
        "oshi.at s3.amazonaws.com storage.googleapis.com temp.sh tmpfiles.org transfer.sh www.dropbox.com",
    ),
    _host_group(
        "messages and requests for anybody to read",
        "api.telegram.org discord.com hookb.in hooks.slack.com httpbin.org ntfy.sh requestbin.com webhook.site www.requestbin.com",
    ),
)

# What a registry of a country's names keeps for its customers; `com` is no country, so co.com is somebody's name.
_SECOND_LEVEL = re.compile(r"(co|com|org|net|ac|gov|edu|or|ne|go)\.[a-z]{2}")
_STORE = re.compile(r"s3(-[a-z0-9-]+)?(\.[a-z0-9-]+)*\.amazonaws\.com(\.cn)?")
_REGIONAL = re.compile(
    r"(execute-api|elb|compute(-1)?)(\.[a-z0-9-]+)?\.amazonaws\.com|[a-z0-9-]+\.(elb|compute)\.amazonaws\.com|lambda-url\.[a-z0-9-]+\.on\.aws"
)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]\.amazonaws\.com")


def shared_hosting_reason(host: str) -> str:
    """What every name below `host` includes that anybody can put there, or nothing."""
    if "." not in host:
        return "a whole top-level domain"
    if _SECOND_LEVEL.fullmatch(host):
        return f"every name that anybody registers below {host}"
    if _STORE.fullmatch(host):
        return "what anybody uploads"
    if _REGIONAL.fullmatch(host) or _REGION.fullmatch(host):
        return "programs that anybody can run"
    above = next((f"{group.reason} ({name})" for group in HOSTING for name in group.names if name.endswith("." + host)), "")
    return next((group.reason for group in HOSTING if host in group.names), above)


def shared_content_reason(host: str) -> str:
    """What `host` itself serves of anybody's, or nothing."""
    if _STORE.fullmatch(host):
        return "files that anybody uploads"
    return next((group.reason for group in ANYBODYS if host in group.names), "")
