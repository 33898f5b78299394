"""A Kubernetes control plane on 127.0.0.1: etcd of Debian and a kube-apiserver with RBAC, and kubectl to ask it.

No controllers and no scheduler: whatever they would make, a test makes. Objects of every kind can be stored and watched,
tokens of service accounts are real, and permissions are checked. Both servers can be killed and started again.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

from . import tools
from .layout import REPOSITORY, BedError, run, which
from .process import Process, wait_for
from .proxy import sum_of_samples

CRDS = REPOSITORY / "packaging" / "crds"
SERVICE_ADDRESSES = "10.96.0.0/16"
START_SECONDS = 180.0


def free_ports(count):
    """Ports of 127.0.0.1 that nobody uses."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            taken = stack.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            found.append(taken.getsockname()[1])
        return found


class Authority:
    """A certificate authority and what it signs, as files in one folder."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        # Named in full: what openssl adds by itself differs from version to version.
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        self._openssl("req", "-x509", *self._new_key(self._key), "-days", "365", "-subj", "/CN=koord-bed", "-out", self.certificate, *_each("-addext", extensions))

    @staticmethod
    def _new_key(path):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path)

    @staticmethod
    def _openssl(*words):
        run([which("openssl"), *words])

    def sign(self, name, subject, addresses=""):
        """Makes NAME.crt and NAME.key for servers and clients; returns both paths."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if certificate.exists():
            return certificate, key
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        lines = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
        lines += [f"subjectAltName={addresses}"] if addresses else []
        extensions.write_text("\n".join(lines) + "\n", encoding="ascii")
        self._openssl("req", "-new", *self._new_key(key), "-subj", subject, "-out", request)
        signer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, *signer, "-days", "365", "-extfile", extensions, "-out", certificate)
        return certificate, key

    def signing_key(self, name):
        """A key without certificate, for tokens."""
        key = self.folder / f"{name}.key"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        return key


def _each(flag, values):
    return [word for value in values for word in (flag, value)]


class ControlPlane:
    """etcd and kube-apiserver below one folder. Use it with `with`; `kubeconfig` is the administrator's."""

    def __init__(self, directory, flags=()):
        self.directory = pathlib.Path(directory) / "controlplane"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._programs = tools.folder("controlplane")
        etcd_port, peer_port, self.port = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"
        self.authority = Authority(self.directory / "pki")
        self.kubeconfig = self.kubeconfig_of("admin", "system:masters")
        self._context = ssl.create_default_context(cafile=str(self.authority.certificate))
        self._context.load_cert_chain(*self.authority.sign("admin", "/O=system:masters/CN=admin"))
        self.etcd = Process("etcd", self._etcd_command(etcd_port, peer_port), self.directory / "etcd.log")
        command = [*self._apiserver_command(etcd_port), *flags]
        self.apiserver = Process("kube-apiserver", command, self.directory / "kube-apiserver.log")

    def _etcd_command(self, port, peer_port):
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        return [
            tools.folder("etcd") / "usr" / "bin" / "etcd",
            *("--name", "bed", "--data-dir", self.directory / "etcd", "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"bed={peer}"),
        ]

    def _apiserver_command(self, etcd_port):
        names = "IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
        certificate, key = self.authority.sign("apiserver", "/CN=kube-apiserver", names)
        kubelet_certificate, kubelet_key = self.authority.sign("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver")
        tokens = self.authority.signing_key("service-accounts")
        return [
            self._programs / "kube-apiserver",
            *("--etcd-servers", f"http://127.0.0.1:{etcd_port}"),
            *("--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", self.port),
            # A loopback address cannot be an endpoint of the service "kubernetes".
            *("--endpoint-reconciler-type", "none", "--service-cluster-ip-range", SERVICE_ADDRESSES),
            *("--tls-cert-file", certificate, "--tls-private-key-file", key, "--client-ca-file", self.authority.certificate),
            *("--kubelet-client-certificate", kubelet_certificate, "--kubelet-client-key", kubelet_key),
            *("--authorization-mode", "Node,RBAC", "--allow-privileged"),
            # Pods need no service account here: the controller that makes them in each namespace does not run.
            *("--disable-admission-plugins", "ServiceAccount", "--enable-admission-plugins", "NodeRestriction"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", tokens, "--service-account-signing-key-file", tokens),
        ]

    def kubeconfig_of(self, user, *groups):
        """A kubeconfig file of a user with a certificate, for example `system:node:NAME` in `system:nodes`."""
        name = user.replace(":", "-")
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        certificate, key = self.authority.sign(name, subject)
        return self._write_kubeconfig(name, {"client-certificate": str(certificate), "client-key": str(key)})

    def _write_kubeconfig(self, name, user):
        cluster = {"server": self.server, "certificate-authority": str(self.authority.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": name}}],
            "current-context": "bed",
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(config, indent=1), encoding="utf-8")
        path.chmod(0o600)
        return path

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts what does not run, and waits until the API server is ready."""
        if not self.etcd.alive():
            self.etcd.start()
        if not self.apiserver.alive():
            self.apiserver.start()

        def ready():
            self.etcd.check()
            return self.is_ready()

        self.apiserver.wait_ready(ready, START_SECONDS)
        # The server makes these itself, a moment after it is ready.
        wait_for("namespace default", lambda: self.get("/api/v1/namespaces/default") is not None, START_SECONDS)

    def stop(self):
        """Ends both servers."""
        self.apiserver.stop()
        self.etcd.stop()

    def kill_apiserver(self):
        """The server is gone, with every connection; what was written is kept."""
        self.apiserver.kill()

    def is_ready(self):
        """Whether /readyz answers 200."""
        try:
            self.request("GET", "/readyz")
        except (OSError, BedError):
            return False
        return True

    def request(self, method, path, body=None, kind="application/json"):
        """Sends a request as administrator; returns the text of the answer. HTTPError says what the server refuses."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
            return answer.read().decode()

    def get(self, path):
        """An object, or None."""
        try:
            return json.loads(self.request("GET", path))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise BedError(f"GET {path}: {error.code} {error.read().decode(errors='replace')}") from error

    def metric(self, name, **labels):
        """Sum of a metric of the API server over all series with these labels."""
        return sum_of_samples(self.request("GET", "/metrics"), name, labels)

    def kubectl(self, *words, text=None, check=True, kubeconfig=None):
        """Runs kubectl; returns its output. Without `check` an error's text is returned as well."""
        command = [self._programs / "kubectl", "--kubeconfig", kubeconfig or self.kubeconfig, *words]
        environment = {**os.environ, "HOME": str(self.directory), "KUBECTL_KUBERC": "false"}
        result = subprocess.run(
            [str(word) for word in command], input=text, capture_output=True, text=True, check=False, env=environment, timeout=120
        )
        if check and result.returncode != 0:
            raise BedError(f"kubectl {' '.join(map(str, words))}: {result.stderr.strip()}")
        return result.stdout if check else result.stdout + result.stderr

    def apply(self, *objects):
        """Creates or changes objects given as Python values."""
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def install_crds(self, folder=CRDS):
        """Installs our custom resources and waits until each is served and described; returns their names."""
        files = sorted(folder.glob("*.yaml"))
        if not files:
            raise BedError(f"no custom resources in {folder}")
        for file in files:
            self.kubectl("apply", "--server-side", "-f", file)
        definitions = json.loads(self.kubectl("get", "crd", "-o", "json"))["items"]
        names = sorted(item["metadata"]["name"] for item in definitions)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))

        def served(spec):
            # An answer such as 429 while the storage of a resource is made is one of the things to wait for.
            with contextlib.suppress(BedError):
                return is_served(spec, self.get)
            return False

        # Established says that the server may serve it: discovery, the resource and its OpenAPI document, which is what
        # `kubectl explain` reads, each follow in a time of their own.
        for definition in definitions:
            wait_for(f"{definition['metadata']['name']} served and described", lambda spec=definition["spec"]: served(spec))
        return names

    def add_node(self, name, address="127.0.0.1", **more):
        """A Ready node without a kubelet: an object only. `more` goes into its metadata."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **more}}
        size = {"cpu": str(os.cpu_count()), "memory": "8Gi", "pods": "110"}
        status = {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bed", "message": "an object only"}],
        }
        self.apply(node)
        path = f"/api/v1/nodes/{name}/status"
        return json.loads(self.request("PATCH", path, {"status": status}, "application/merge-patch+json"))

    def service_account(self, namespace, name, rules):
        """A service account with these rules in the whole cluster. Returns a folder as a pod has it: token, ca.crt and
        namespace. `new_token` replaces the token."""
        if self.get(f"/api/v1/namespaces/{namespace}") is None:
            self.kubectl("create", "namespace", namespace)
        role = f"{namespace}-{name}"
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        self.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            },
        )
        folder = self.directory / "service-accounts" / role
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.authority.certificate, folder / "ca.crt")
        (folder / "namespace").write_text(namespace, encoding="ascii")
        self.new_token(folder, namespace, name)
        # One role has all rules: when one of them is known, all are.
        user = f"system:serviceaccount:{namespace}:{name}"
        wait_for(f"permissions of {user}", lambda: self.may(user, rules[-1]))
        return folder

    def may(self, user, rule):
        """Whether a user has one of the permissions of a rule. The server learns of roles a moment after they are stored."""
        resource, _, subresource = rule["resources"][0].partition("/")
        asked = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource, "subresource": subresource}
        review = {"spec": {"user": user, "resourceAttributes": asked}}
        answer = self.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return json.loads(answer)["status"]["allowed"]

    def new_token(self, folder, namespace, name):
        """Puts a fresh token into the folder, in one step as the kubelet does."""
        token = self.kubectl("create", "token", name, "-n", namespace, "--duration", "1h").strip()
        beside = folder / ".token"
        beside.write_text(token, encoding="ascii")
        beside.rename(folder / "token")

    def service_account_kubeconfig(self, folder):
        """A kubeconfig file that reads the token of such a folder."""
        return self._write_kubeconfig(folder.name, {"tokenFile": str(folder / "token")})


def is_served(spec, get):
    """Whether every version of a custom resource that is to be served is in discovery, answers a list and is in the
    OpenAPI document of its group. `get` reads a path of the API server as JSON, None where nothing is."""
    kind, plural, group = spec["names"]["kind"], spec["names"]["plural"], spec["group"]
    for version in (each["name"] for each in spec["versions"] if each["served"]):
        path = f"apis/{group}/{version}"
        resources = (get(f"/{path}") or {}).get("resources", [])
        if plural not in (each["name"] for each in resources) or get(f"/{path}/{plural}?limit=1") is None:
            return False
        document = get("/openapi/v3")["paths"].get(path)
        schemas = (document and get(document["serverRelativeURL"]) or {}).get("components", {}).get("schemas", {})
        described = [each for schema in schemas.values() for each in schema.get("x-kubernetes-group-version-kind", [])]
        if {"group": group, "version": version, "kind": kind} not in described:
            return False
    return True


def token_subject(token):
    """Whose token it is, without checking it."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["sub"]
