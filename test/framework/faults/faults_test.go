// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// echo starts a server that returns each line, and a proxy for it.
func echo(t *testing.T) (*WithT, *TCPProxy) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					fmt.Fprintln(connection, lines.Text())
				}
			}()
		}
	}()
	proxy, err := StartTCPProxy(listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(proxy.Stop()).To(Succeed()) })
	return g, proxy
}

// isAnyBroken reports whether bytes of a connection were dropped.
func (p *TCPProxy) isAnyBroken() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.connections {
		if c.isBroken {
			return true
		}
	}
	return false
}

// client is a connection that sends lines and receives responses.
type client struct {
	net.Conn
	lines chan string
}

func dial(g *WithT, proxy *TCPProxy) *client {
	connection, err := net.Dial("tcp", proxy.Address())
	g.Expect(err).NotTo(HaveOccurred())
	c := &client{Conn: connection, lines: make(chan string)}
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(connection); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	return c
}

func (c *client) send(g *WithT, line string) {
	_, err := fmt.Fprintln(c, line)
	g.Expect(err).NotTo(HaveOccurred())
}

const timeout = 30 * time.Second

func TestTCPProxy(t *testing.T) {
	t.Run("latency", func(t *testing.T) {
		g, proxy := echo(t)
		c := dial(g, proxy)
		c.send(g, "fast")
		g.Eventually(c.lines, timeout).Should(Receive(Equal("fast")))
		proxy.SetLatency(100 * time.Millisecond)
		start := time.Now()
		c.send(g, "slow")
		g.Eventually(c.lines, timeout).Should(Receive(Equal("slow")))
		g.Expect(time.Since(start)).To(BeNumerically(">=", 200*time.Millisecond), "both directions")
	})
	t.Run("cut", func(t *testing.T) {
		g, proxy := echo(t)
		c := dial(g, proxy)
		c.send(g, "a")
		g.Eventually(c.lines, timeout).Should(Receive())
		proxy.Cut()
		g.Eventually(c.lines, timeout).Should(BeClosed())
		again := dial(g, proxy)
		again.send(g, "b")
		g.Eventually(again.lines, timeout).Should(Receive(Equal("b")))
	})
	t.Run("refuse", func(t *testing.T) {
		g, proxy := echo(t)
		existing := dial(g, proxy)
		existing.send(g, "a")
		g.Eventually(existing.lines, timeout).Should(Receive())
		proxy.Refuse(true)
		g.Eventually(dial(g, proxy).lines, timeout).Should(BeClosed())
		existing.send(g, "b")
		g.Eventually(existing.lines, timeout).Should(Receive(Equal("b")))
	})
	t.Run("drop", func(t *testing.T) {
		g, proxy := echo(t)
		idle, busy := dial(g, proxy), dial(g, proxy)
		for _, c := range []*client{idle, busy} {
			c.send(g, "a")
			g.Eventually(c.lines, timeout).Should(Receive())
		}
		proxy.Drop(true)
		busy.send(g, "lost")
		g.Eventually(proxy.isAnyBroken, timeout).Should(BeTrue())
		g.Consistently(busy.lines, "200ms").ShouldNot(Receive(), "the connection stays open")
		proxy.Drop(false)
		g.Eventually(busy.lines, timeout).Should(BeClosed())
		idle.send(g, "b")
		g.Eventually(idle.lines, timeout).Should(Receive(Equal("b")))
	})
	t.Run("faults of one client", func(t *testing.T) {
		g, proxy := echo(t)
		proxy.Identify(func(bytes []byte) string {
			_, identity, _ := strings.Cut(strings.TrimSpace(string(bytes)), "I am ")
			return identity
		})
		a, b := dial(g, proxy), dial(g, proxy)
		for name, c := range map[string]*client{"a": a, "b": b} {
			c.send(g, "I am "+name)
			g.Eventually(c.lines, timeout).Should(Receive())
		}
		proxy.LimitTo("b")
		proxy.Pause(true)
		b.send(g, "delayed")
		a.send(g, "not delayed")
		g.Eventually(a.lines, timeout).Should(Receive(Equal("not delayed")))
		g.Consistently(b.lines, "200ms").ShouldNot(Receive())
		proxy.Pause(false)
		g.Eventually(b.lines, timeout).Should(Receive(Equal("delayed")))
		proxy.Drop(true)
		b.send(g, "lost")
		a.send(g, "forwarded")
		g.Eventually(a.lines, timeout).Should(Receive(Equal("forwarded")))
		g.Eventually(proxy.isAnyBroken, timeout).Should(BeTrue())
		g.Consistently(b.lines, "200ms").ShouldNot(Receive())
		proxy.Drop(false)
		g.Eventually(b.lines, timeout).Should(BeClosed())
		proxy.Cut()
		a.send(g, "again")
		g.Eventually(a.lines, timeout).Should(Receive(Equal("again")))
	})
}

// apiServer counts the requests that it executes.
func apiServer(t *testing.T) (*WithT, *HTTPProxy, kubernetes.Interface, *atomic.Int32) {
	g, executed := NewWithT(t), &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`+"\n")
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	proxy, err := StartHTTPProxy(config)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(proxy.Stop)
	clientset, err := kubernetes.NewForConfig(proxy.ConfigFor(config))
	g.Expect(err).NotTo(HaveOccurred())
	return g, proxy, clientset, executed
}

func TestHTTPProxy(t *testing.T) {
	isDeletion := func(r *Request) bool {
		return r.IsWrite() && r.Verb == "delete" && r.Resource == "configmaps" && r.Namespace == "ns"
	}
	for name, test := range map[string]struct {
		fault    Fault
		executed int32
		matches  func(error) bool
	}{
		"no fault": {nil, 1, func(err error) bool { return err == nil }},
		"500":      {Fail(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0), 0, apierrors.IsInternalError},
		"504 after the execution": {
			LoseResponse(Fail(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0)), 1, apierrors.IsTimeout,
		},
		"the response is lost": {LoseResponse(Abort(func() {})), 1, func(err error) bool {
			return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && err != nil
		}},
		"the request is lost": {Abort(func() {}), 0, func(err error) bool { return err != nil }},
		"a delay":             {Delay(time.Millisecond), 1, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			g, proxy, clientset, executed := apiServer(t)
			proxy.Set(func(r *Request) Fault {
				if isDeletion(r) {
					return test.fault
				}
				return nil
			})
			err := clientset.CoreV1().ConfigMaps("ns").Delete(t.Context(), "a", metav1.DeleteOptions{})
			g.Expect(err).To(Satisfy(test.matches))
			g.Expect(executed.Load()).To(Equal(test.executed))
			g.Expect(clientset.CoreV1().ConfigMaps("other").Delete(t.Context(), "a", metav1.DeleteOptions{})).To(Succeed())
		})
	}
	t.Run("throttling", func(t *testing.T) {
		g, proxy, clientset, executed := apiServer(t)
		var requests atomic.Int32
		proxy.Set(func(*Request) Fault {
			if requests.Add(1) == 1 {
				return Fail(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second)
			}
			return nil
		})
		g.Expect(clientset.CoreV1().ConfigMaps("ns").Delete(t.Context(), "a", metav1.DeleteOptions{})).To(Succeed())
		g.Expect([]int32{requests.Load(), executed.Load()}).To(Equal([]int32{2, 1}), "the client repeats the request")
	})
	t.Run("closed watches", func(t *testing.T) {
		g, proxy, clientset, _ := apiServer(t)
		stream, err := clientset.CoreV1().RESTClient().Get().AbsPath("/api/v1/configmaps").Param("watch", "1").Stream(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		lines := bufio.NewReader(stream)
		g.Expect(lines.ReadString('\n')).To(ContainSubstring("ConfigMap"))
		proxy.CloseWatches()
		_, err = lines.ReadString('\n')
		g.Expect(err).To(HaveOccurred())
	})
	t.Run("the body can be read", func(t *testing.T) {
		g, proxy, clientset, executed := apiServer(t)
		var body atomic.Value
		proxy.Set(func(r *Request) Fault { body.Store(r.Body()); return nil })
		err := clientset.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/ns/configmaps").
			SetHeader("Content-Type", "application/json").Body(strings.NewReader("{}")).Do(t.Context()).Error()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(body.Load()).To(Equal("{}"))
		g.Expect(executed.Load()).To(Equal(int32(1)))
	})
}
