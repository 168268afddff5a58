{{- define "kquota.labels" -}}
app.kubernetes.io/name: kquota
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kquota.security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A container: root, component, image, command, resources; mounts and ports may be added. */}}
{{- define "kquota.container" -}}
name: {{ .component }}
image: {{ .image | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: {{ toJson .command }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .root.Values.secret }}
envFrom:
  - secretRef: {name: {{ . | quote }}}
{{- end }}
resources: {{- toYaml .resources | nindent 2 }}
{{- end }}

{{- define "kquota.mounts" -}}
- {name: settings, mountPath: /etc/kquota, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "kquota.volumes" -}}
- name: settings
  configMap: {name: {{ .Release.Name }}-kquota}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "kquota.claim" -}}
{{ .Values.data.existingClaim | default (printf "%s-kquota" .Release.Name) }}
{{- end }}
