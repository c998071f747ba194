// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/time/rate"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// The addresses of the servers of the process, and the process.
var (
	address, probeAddress, metricsAddress string
	process                               *gexec.Session
)

// Each limit has one attack without the label: the other ones reach the same limit with another webhook, field or server.
var _ = Describe("The process of the manager", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		DeferCleanup(restartManager)
		startProcess(ctx)
		const name = "quick.test.example.com"
		initializer, err := initializers.Start(ctx, cluster.Initializer.Config, name, initializers.After(500*time.Millisecond))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(initializer.Stop)
		cluster.Register(ctx, "attacked", name)
	}, NodeTimeout(5*time.Minute))

	DescribeTable("works within its memory limit during an attack",
		func(ctx context.Context, attack attack) {
			resetPeakMemory()
			attacks, stop := context.WithCancel(ctx)
			report := make(chan string)
			go func() { report <- attack(attacks) }()
			start := time.Now()
			expectLifecycle(ctx)
			duration := time.Since(start)
			stop()
			sent := <-report
			Expect(process).NotTo(gexec.Exit())
			peak := peakMemory()
			AddReportEntry(fmt.Sprintf("peak memory %d MiB, a life cycle in %s, during %s", peak, duration, sent))
			Expect(peak).To(BeNumerically("<", memoryLimit()))
		},
		Entry("without an attack", attack(func(ctx context.Context) string { <-ctx.Done(); return "nothing" })),
		Entry("objects of a template", bodies("/templates", review(list("objects", "{}")))),
		Entry("parameters of a template", Label("long"), bodies("/templates", review(list("parameters", "{}")))),
		Entry("variables of a template", Label("long"), bodies("/templates", review(list("variables", "{}")))),
		Entry("a template that takes long to compile", bodies("/templates", review(costlyTemplate()))),
		Entry("a large object of a held write", Label("long"), bodies("/hold", review(list("objects", "{}")))),
		Entry("a YAML alias bomb in a held write", bodies("/hold", aliasBomb())),
		Entry("a YAML alias bomb in a template", bodies("/templates", aliasBomb())),
		Entry("nested JSON in a held write", bodies("/hold", review(strings.Repeat(`[`, 7<<20)))),
		Entry("nested JSON in a template", Label("long"), bodies("/templates", review(strings.Repeat(`{"a":`, 1<<20)))),
		Entry("nested JSON before the request", Label("long"), bodies("/hold", strings.Repeat(`{"a":`, 1<<20))),
		Entry("labels of a new namespace", bodies("/inject/1", review(`{"metadata":{"labels":`+members(6<<20)+`}}`))),
		Entry("annotations of an update", Label("long"), bodies("/restore", reviewOf(`{"metadata":{"annotations":`+members(6<<20)+`}}`,
			`{"metadata":{"annotations":`+members(6<<20)+`}}`))),
		Entry("a YAML alias bomb in a new namespace", Label("long"), bodies("/inject/1", aliasBomb())),
		Entry("nested JSON in an update", Label("long"), bodies("/complete", review(strings.Repeat(`{"a":`, 1<<20)))),
		Entry("creations that wait for a set", Label("long"), bodies("/inject/1000000", review("{}"))),
		Entry("80 unfinished held writes", unfinished("/hold", 80)),
		Entry("80 unfinished templates", Label("long"), unfinished("/templates", 80)),
		Entry("1,000 unfinished held writes", unfinished("/hold", 1000)),
		Entry("1,000 unfinished templates", Label("long"), unfinished("/templates", 1000)),
		Entry("1,000 slow headers", slowHeaders(1000)),
		Entry("1,000 silent connections", silence(1000)),
		Entry("1,000 large headers for the webhooks", largeHeaders(&address, 1000)),
		Entry("1,000 large headers for the metrics", Label("long"), largeHeaders(&metricsAddress, 1000)),
		Entry("1,000 large headers for the probes", Label("long"), largeProbeHeaders(1000)),
		Entry("10,000 requests per second for unknown namespaces", attack(unknownNamespaces)),
		Entry("10,000 requests per second that are not TLS", attack(garbage)),
	)
})

// expectLifecycle expects that a namespace is initialized, that a write is held until then, and that the namespace
// is finalized.
func expectLifecycle(ctx context.Context) {
	GinkgoHelper()
	namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("attacked"))
	// While the attack delays the answers to probes, writes are refused instead of held.
	Eventually(cluster.Ordinary.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(namespace.Name, "web")).Should(Succeed())
	cluster.Admin.Deletes(ctx, namespace)
	framework.ExpectDeleted(ctx, cluster.Admin, namespace)
}

// startProcess runs the manager until the container ends, with the limit of its Deployment.
func startProcess(ctx context.Context) {
	GinkgoHelper()
	binary := filepath.Join(cluster.Dir, "manager")
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary)).To(Succeed())
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	options, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	address, probeAddress, metricsAddress = options.Address, framework.FreeAddress(), framework.FreeAddress()
	command := exec.Command(binary, controlplane.WithoutAdmission, "--kubeconfig="+framework.KubeconfigFile(config),
		"--health-probe-bind-address="+probeAddress, "--metrics-bind-address="+metricsAddress, "--webhook-bind-address="+address)
	command.Env = append(os.Environ(), "GOGC=100", fmt.Sprintf("GOMEMLIMIT=%dMiB", memoryLimit()))
	process, err = gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		process.Terminate().Wait(30 * time.Second)
		persistent.CloseIdleConnections()
	})
	admission, err := cluster.StartAdmission(ctx, func(o *manager.Options) { o.Hold = options })
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(admission.Stop()).To(Succeed()) })
	Expect(cluster.WaitForHold(ctx, options.URL)).To(Succeed())
}

// memoryLimit returns the limit of the manager in MiB.
func memoryLimit() int {
	GinkgoHelper()
	manifest, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "manager", "base", "deployment.yaml"))
	Expect(err).NotTo(HaveOccurred())
	match := regexp.MustCompile(`memory: (\d+)Mi\s+securityContext`).FindStringSubmatch(string(manifest))
	Expect(match).NotTo(BeNil())
	limit, err := strconv.Atoi(match[1])
	Expect(err).NotTo(HaveOccurred())
	return limit
}

// peakMemory returns the largest resident memory of the manager in MiB since resetPeakMemory.
func peakMemory() int {
	GinkgoHelper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Command.Process.Pid))
	Expect(err).NotTo(HaveOccurred(), "the manager must be running")
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			Expect(err).NotTo(HaveOccurred())
			return kilobytes >> 10
		}
	}
	Fail("no VmHWM in " + string(status))
	return 0
}

func resetPeakMemory() {
	GinkgoHelper()
	path := fmt.Sprintf("/proc/%d/clear_refs", process.Command.Process.Pid)
	Expect(os.WriteFile(path, []byte("5"), 0)).To(Succeed())
}

// attack sends requests until the context is done. It returns a number for the report.
type attack func(ctx context.Context) string

// bodies sends the same review again and again.
func bodies(path, body string) attack {
	return func(ctx context.Context) string {
		var sent atomic.Int64
		repeat(ctx, 8, func() {
			post(ctx, reconnecting, path, strings.NewReader(body))
			sent.Add(1)
		})
		return fmt.Sprintf("%d reviews of %d bytes", sent.Load(), len(body))
	}
}

// review returns a review with an object, as JSON.
func review(object string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","namespace":"default",` +
		`"operation":"CREATE","userInfo":{"username":"mallory"},"object":` + object + `}}`
}

// reviewOf returns a review of an update, as JSON.
func reviewOf(object, oldObject string) string {
	return strings.TrimSuffix(review(object), "}}") + `,"oldObject":` + oldObject + `}}`
}

// members returns an object with many members of a size in all.
func members(size int) string {
	member := `"nslifecycle.dev/pending-initializers":"",`
	return "{" + strings.Repeat(member, size/len(member)) + `"a":"b"}`
}

// list returns an object whose spec has a list with many elements, of 7 MiB in all.
func list(field, element string) string {
	const size = 6 << 20
	return `{"metadata":{"name":"x"},"spec":{"serviceAccountName":"x","` + field + `":[` +
		strings.Repeat(element+",", size/(len(element)+1)) + element + `]}}`
}

// costlyTemplate returns a template that takes long to compile.
func costlyTemplate() string {
	var data []string
	for i := range 120 {
		data = append(data, fmt.Sprintf(`"k%d":"${%s}"`, i, strings.Repeat("params.a.size() + ", 12)+"1 == 2"))
	}
	return `{"metadata":{"name":"x"},"spec":{"serviceAccountName":"x","parameters":[{"name":"a"}],"objects":[{"name":"x",` +
		`"template":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{` + strings.Join(data, ",") + `}}}]}}`
}

// aliasBomb returns YAML that contains the object 10 times 8,000 times by aliases.
func aliasBomb() string {
	object := "{" + strings.Repeat("a: b, ", 6000) + "}"
	return "kind: AdmissionReview\napiVersion: admission.k8s.io/v1\na: &a " + object +
		"\nrequest:\n  uid: '1'\n  namespace: default\n  object:\n    b: [" + strings.Repeat("*a,", 26000) + "*a]\n"
}

// unfinished keeps a number of connections that have sent the beginning of a review.
func unfinished(path string, number int) attack {
	return connections(&address, number, func(ctx context.Context, conn net.Conn) {
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, 7<<20, strings.TrimSuffix(review(`{"spec":{"a":"`+strings.Repeat("a", 1<<20)+`"}}`), `"}}}}`))
		waitForEnd(ctx, conn)
	})
}

// slowHeaders keeps a number of connections that send a header byte by byte.
func slowHeaders(number int) attack {
	return connections(&address, number, func(ctx context.Context, conn net.Conn) {
		_, err := io.WriteString(conn, "POST /hold HTTP/1.1\r\nHost: x\r\nX: ")
		for err == nil {
			select {
			case <-time.After(200 * time.Millisecond):
				_, err = io.WriteString(conn, "x")
			case <-ctx.Done():
				return
			}
		}
	})
}

// largeHeader is a header without an end.
var largeHeader = "GET / HTTP/1.1\r\n" + strings.Repeat("X: "+strings.Repeat("x", 4000)+"\r\n", 250)

// largeHeaders keeps a number of connections that have sent a large header to a server with TLS.
func largeHeaders(address *string, number int) attack {
	return connections(address, number, func(ctx context.Context, conn net.Conn) {
		_, _ = io.WriteString(conn, largeHeader)
		waitForEnd(ctx, conn)
	})
}

// largeProbeHeaders is largeHeaders for the server of the probes.
func largeProbeHeaders(number int) attack {
	return func(ctx context.Context) string {
		return keep(ctx, number, func() error {
			conn, err := dial(ctx, probeAddress)
			if err == nil {
				_, _ = io.WriteString(conn, largeHeader)
				waitForEnd(ctx, conn)
			}
			return err
		})
	}
}

// silence keeps a number of connections without a TLS handshake.
func silence(number int) attack {
	return func(ctx context.Context) string {
		return keep(ctx, number, func() error {
			conn, err := dial(ctx, address)
			if err == nil {
				waitForEnd(ctx, conn)
			}
			return err
		})
	}
}

// unknownNamespaces sends 10,000 reviews per second.
func unknownNamespaces(ctx context.Context) string {
	return flood(ctx, func(i int64) {
		body := strings.Replace(review("{}"), "default", fmt.Sprintf("unknown-%d", i), 1)
		post(ctx, persistent, "/hold", strings.NewReader(body))
	})
}

// garbage sends 10,000 requests per second that are not TLS.
func garbage(ctx context.Context) string {
	request := bytes.Repeat([]byte("GET /hold HTTP/1.1\r\n"), 100)
	return flood(ctx, func(int64) {
		conn, err := dial(ctx, address)
		if err != nil {
			return
		}
		_, _ = conn.Write(request)
		_ = conn.Close()
	})
}

// flood calls a function 10,000 times per second, as far as the machine permits.
func flood(ctx context.Context, send func(int64)) string {
	start := time.Now()
	limiter := rate.NewLimiter(10_000, 100)
	var sent atomic.Int64
	repeat(ctx, 200, func() {
		if limiter.Wait(ctx) == nil {
			send(sent.Add(1))
		}
	})
	return fmt.Sprintf("%.0f requests per second", float64(sent.Load())/time.Since(start).Seconds())
}

// connections keeps a number of TLS connections on which use is called.
func connections(address *string, number int, use func(context.Context, net.Conn)) attack {
	return func(ctx context.Context) string {
		return keep(ctx, number, func() error {
			conn, err := dial(ctx, *address)
			if err != nil {
				return err
			}
			defer conn.Close()
			secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			if err := secure.HandshakeContext(ctx); err != nil {
				return err
			}
			use(ctx, secure)
			return nil
		})
	}
}

// keep opens a connection again when it ends, and at most once per second: this process uses the same processors.
func keep(ctx context.Context, number int, open func() error) string {
	var opened atomic.Int64
	repeat(ctx, number, func() {
		next := time.After(time.Second)
		_ = open()
		opened.Add(1)
		select {
		case <-next:
		case <-ctx.Done():
		}
	})
	return fmt.Sprintf("%d connections", opened.Load())
}

// waitForEnd waits until the server closes a connection.
func waitForEnd(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

// repeat calls a function concurrently and repeatedly until the context is done.
func repeat(ctx context.Context, workers int, call func()) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				call()
			}
		})
	}
	all.Wait()
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// The clients differ in whether they use a connection again.
var (
	reconnecting = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	persistent = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 200, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
)

// post sends a review and drops the response.
func post(ctx context.Context, client *http.Client, path string, body io.Reader) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+path, body)
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if response, err := client.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}
