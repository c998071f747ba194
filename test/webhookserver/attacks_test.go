// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// attack sends requests until the context is done. It returns a number for the report.
type attack func(ctx context.Context) string

// bodies sends the same review again and again.
func bodies(path, body string) attack {
	return func(ctx context.Context) string {
		var sent atomic.Int64
		repeat(ctx, 8, func() {
			post(ctx, client, path, strings.NewReader(body))
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
		hold(ctx, conn)
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
		hold(ctx, conn)
	})
}

// largeProbeHeaders is largeHeaders for the server of the probes.
func largeProbeHeaders(number int) attack {
	return func(ctx context.Context) string {
		return keep(ctx, number, func() error {
			conn, err := dial(ctx, probeAddress)
			if err == nil {
				_, _ = io.WriteString(conn, largeHeader)
				hold(ctx, conn)
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
				hold(ctx, conn)
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

// hold waits until the server closes a connection.
func hold(ctx context.Context, conn net.Conn) {
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
	client = &http.Client{Transport: &http.Transport{
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
