{{/*
A Deployment and its PodDisruptionBudget. The argument contains the root context, the name, the flags, and whether the
Pods serve webhooks and metrics.
*/}}
{{- define "nslifecycle.part" }}
{{- $part := . }}
{{- with .root }}
{{- if .Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: nslifecycle-{{ $part.name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "nslifecycle.labels" . | nindent 4 }}
    control-plane: {{ $part.name }}
spec:
  maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
  # A Pod that is not ready does not contribute to availability, so it can be evicted.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "nslifecycle.selector" $part.name | nindent 6 }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nslifecycle-{{ $part.name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "nslifecycle.labels" . | nindent 4 }}
    control-plane: {{ $part.name }}
spec:
  replicas: {{ .Values.replicas }}
  {{- if and $part.webhooks .Values.webhooks.hostNetwork }}
  strategy:
    rollingUpdate:
      maxSurge: 0
      maxUnavailable: 1
  {{- end }}
  selector:
    matchLabels:
      {{- include "nslifecycle.selector" $part.name | nindent 6 }}
  template:
    metadata:
      annotations:
        kubectl.kubernetes.io/default-container: manager
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      labels:
        {{- include "nslifecycle.selector" $part.name | nindent 8 }}
        {{- if $part.metrics }}
        nslifecycle.dev/metrics: https
        {{- end }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: nslifecycle-{{ $part.name }}
      {{- if and $part.webhooks .Values.webhooks.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # Longer than the manager's graceful shutdown timeout of 30 s.
      terminationGracePeriodSeconds: 40
      {{- with .Values.topologySpreadConstraints }}
      {{- $selector := dict "matchLabels" (include "nslifecycle.selector" $part.name | fromYaml) }}
      topologySpreadConstraints:
      {{- range . }}
      - {{ toYaml (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .)) | nindent 8 | trim }}
      {{- end }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: manager
        image: {{ include "nslifecycle.image" . | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        command:
        - /manager
        args:
        - --leader-elect
        - --health-probe-bind-address=:8081
        {{- range $part.flags }}
        - {{ . | quote }}
        {{- end }}
        {{- if $part.metrics }}
        - --metrics-bind-address=:{{ .Values.metrics.port }}
        {{- end }}
        {{- with include "nslifecycle.arguments" . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        env:
        # The system namespace is exempt from initialization; the manager publishes its name
        # to the policies.
        - name: POD_NAMESPACE
          valueFrom:
            # With the defaults, because Argo CD with server-side apply reports them as differences.
            fieldRef:
              apiVersion: v1
              fieldPath: metadata.namespace
        # Garbage is collected before the container would be killed.
        - name: GOMEMLIMIT
          valueFrom:
            resourceFieldRef:
              resource: limits.memory
              divisor: "0"
        ports:
        - name: health
          containerPort: 8081
          protocol: TCP
        {{- if $part.webhooks }}
        - name: webhook
          containerPort: {{ .Values.webhooks.port }}
          protocol: TCP
        {{- end }}
        {{- if $part.metrics }}
        - name: https
          containerPort: {{ .Values.metrics.port }}
          protocol: TCP
        {{- end }}
        {{- if $part.webhooks }}
        # A terminating replica serves until kube-proxy has removed its address.
        lifecycle:
          preStop:
            sleep:
              seconds: 5
        {{- end }}
        livenessProbe:
          httpGet:
            path: /healthz
            port: health
          initialDelaySeconds: 15
          periodSeconds: 20
        readinessProbe:
          httpGet:
            path: /readyz
            port: health
          initialDelaySeconds: 2
          periodSeconds: 5
        resources:
          {{- toYaml .Values.resources | nindent 10 }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop:
            - ALL
        volumeMounts:
        - name: tmp
          mountPath: /tmp
      volumes:
      - name: tmp
        emptyDir:
          medium: Memory
          sizeLimit: 1Mi
{{- end }}
{{- end }}
