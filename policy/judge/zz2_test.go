package judge_test
import ("testing";"feishu-relay/policy/judge")
func TestHeldOut2(t *testing.T){
 no:=[]string{
 "好的，谢谢告知！","收到，感谢您的及时回复","嗯，好的呀","谢谢亲，么么哒","多谢大佬","感谢各位老师的指导","行，辛苦啦","好哒，明天见～","不用客气，有问题随时问我","太好了，恭喜！","没毛病","可以可以","谢谢，你真好","感谢信任，合作愉快","好，听你的","收到指示","感谢大家今天的参与，我们下次再见！","很荣幸能和大家一起工作","祝你好运","明白了，感谢解惑","说得好！","感谢理解与支持🙏","好的，保持联系","了解，那就这样","感谢，已记录",
 "Thanks, that helps a lot!","Okay, thank you for letting me know.","Great to hear!","I'm happy to hear that!","Thanks for your quick response!","Nice, well done team!","Thank you, have a good one!","No problem, glad to be of service.","Right, thanks.","Excellent work everyone, thank you!","Ok cool","Same here","Thanks for having me","Understood, thanks for the heads-up.","Wishing you all the best!","Let me know if I can help with anything else.","Always happy to help!","See you next week, everyone","Lovely, thanks!","Fantastic, I appreciate your help!","Thank you for your time today","That sounds perfect","Good night everyone, sweet dreams","You're the best!","Take care and talk soon!"}
 yes:=[]string{
 "好的，等结果","收到两份文件","谢谢，但链接打不开","是旧版本","可以改名吗","行，改成三天","辛苦看下邮件","感谢，预算是多少","太强的耦合","对方没回复","欢迎大家填写问卷","好用","清楚的部分可以删","祝贺词写好了","确实有泄漏","没错误日志","懂的人来改一下","随时备份","今天的讨论记录在哪","下次见客户前准备好","建议很好实现","说明没写对","想得到最新数据","回复收到","我们赞同方案三","有需要改的","需要帮忙","还需要支持","期待上线","合作方不同意",
 "Thanks to the cache it is fast","Glad to report: 3 failures","Happy path fails","Great, deploying","Sure it is broken","OK, reverted","Yes it is","You too should update","Best model wins","Nice to have: dark mode","All services down","Really slow","Perfect match found","Will do it tomorrow","See the doc","Call me maybe about the contract","Thanks. Blocked.","Hi, need access","So the answer is no","Team, meeting now"}
 w:=0
 for _,s:=range no{ if ok,_:=(judge.Rules{}).Judge(t.Context(),labelled{Text:s}.question());ok{w++;t.Log("passed",s)}}
 t.Log(w,"of",len(no)); w=0
 for _,s:=range yes{ if ok,_:=(judge.Rules{}).Judge(t.Context(),labelled{Text:s}.question());!ok{w++;t.Log("REFUSED",s)}}
 t.Log(w,"of",len(yes))
}
